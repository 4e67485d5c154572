// Tokens with which machines get their first certificates.
#include "base/wall_clock.h"
#include "control/cluster/manager.h"

namespace flyt::cluster {
namespace {

std::string key_of(const std::string& id) { return "enrol/" + id; }

}  // namespace

Result<v1::EnrolToken> Manager::new_enrol_token(const v1::CreateEnrolTokenRequest& request,
                                                const std::string& by) {
  const Lock lock(mutex_);
  const std::int64_t now = unix_seconds();
  auto made = enrol_tokens_.make(request, by, config_.enrol_token_seconds, now);
  if (!made) return std::move(made).error();
  Batch batch;
  batch.put(key_of(made->record.id), made->record.token);
  for (const std::string& id : made->outdated) batch.remove(key_of(id));
  if (Status status = ledger_.commit(std::move(batch)); !status) return status.error();
  for (const std::string& id : made->outdated) enrol_tokens_.forget(id);
  enrol_tokens_.set(made->record);
  v1::EnrolToken token = EnrolTokens::view(made->record, now);
  token.set_token(made->record.id + "." + made->secret);
  return token;
}

v1::ListEnrolTokensResponse Manager::enrol_tokens() {
  const Lock lock(mutex_);
  return enrol_tokens_.list(unix_seconds());
}

Result<v1::EnrolToken> Manager::revoke_enrol_token(const std::string& id) {
  const Lock lock(mutex_);
  auto record = enrol_tokens_.revoke(id);
  if (!record) return std::move(record).error();
  Batch batch;
  batch.put(key_of(id), record->token);
  if (Status status = ledger_.commit(std::move(batch)); !status) return status.error();
  enrol_tokens_.set(*record);
  return EnrolTokens::view(*record, unix_seconds());
}

Result<v1::EnrolToken> Manager::look_at(const EnrolClaim& claim) {
  const Lock lock(mutex_);
  const std::int64_t now = unix_seconds();
  const auto record = enrol_tokens_.use(claim, now);
  if (!record) return record.error();
  return EnrolTokens::view(*record, now);
}

Status Manager::spend(const EnrolClaim& claim, const std::string& serial, const std::string& from) {
  const Lock lock(mutex_);
  auto record = enrol_tokens_.use(claim, unix_seconds());
  if (!record) return std::move(record).error();
  record->token.set_serial(serial);
  record->token.set_used_from(from);
  const bool node = record->token.role() == "node";
  Batch batch;
  batch.put(key_of(record->id), record->token);
  batch.event("machine-enrolled", node ? claim.name : "", node ? "" : claim.name,
              "certificate " + serial + " for " + from);
  if (Status status = ledger_.commit(std::move(batch)); !status) return status;
  enrol_tokens_.set(*record);
  changed();
  return {};
}

}  // namespace flyt::cluster
