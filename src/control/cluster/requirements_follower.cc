#include "control/cluster/requirements_follower.h"

namespace flyt::cluster {

using requirements::Skipped;

Result<requirements::Answer> RequirementsFollower::read() {
  if (!source_) {
    auto made = make_();
    if (!made) return std::move(made).error();
    source_ = std::move(*made);
  }
  return source_->read([this] { return manager_.stopping(); });
}

void RequirementsFollower::step() {
  const auto answer = read();
  if (!answer) {
    manager_.note_requirements(where_ + " cannot be read: " + answer.error().message, {});
    return;
  }
  const auto refused = manager_.take_requirements(*answer);
  if (!refused) {
    manager_.note_requirements(
        "what " + where_ + " says cannot be written: " + refused.error().message, {});
    return;
  }
  std::set<Skipped> skipped(answer->skipped().begin(), answer->skipped().end());
  skipped.insert(refused->begin(), refused->end());
  const std::size_t more = answer->skipped_count() - answer->skipped().size();
  tell(skipped, more);
  std::vector<std::string> lines;
  for (const Skipped& one : skipped) lines.push_back(one.row + ": " + one.why);
  lines.resize(lines.size() + more);
  const bool empty = answer->rows() == 0;
  manager_.note_requirements(empty ? where_ + " has no VM, or is another database" : "",
                             std::move(lines));
}

// Each of them once, for as long as it is skipped.
void RequirementsFollower::tell(const std::set<Skipped>& skipped, std::size_t more) {
  bool fresh = false;
  for (const Skipped& one : skipped) {
    if (told_.contains(one)) continue;
    log_.warn("row skipped", {{"from", where_}, {"row", one.row}, {"why", one.why}});
    fresh = true;
  }
  if (fresh && more != 0) log_.warn("rows skipped", {{"from", where_}, {"more", more}});
  told_ = skipped;
}

void RequirementsFollower::follow(Duration period) {
  do {
    step();
  } while (manager_.await_requirements(period));
}

}  // namespace flyt::cluster
