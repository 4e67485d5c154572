#include "control/cluster/requirements/mongodb.h"

#include <mongoc/mongoc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "control/settings/settings.h"

namespace flyt::cluster::requirements {
namespace {

constexpr std::int32_t kConnectMs = 4000;
constexpr std::int32_t kAnswerMs = 4000;
constexpr std::int32_t kPatienceMsMax = 30000;
constexpr Duration kReadTime = std::chrono::seconds(60);

struct Destroy {
  void operator()(mongoc_uri_t* one) const { ::mongoc_uri_destroy(one); }
  void operator()(mongoc_client_t* one) const { ::mongoc_client_destroy(one); }
  void operator()(mongoc_server_description_t* one) const {
    ::mongoc_server_description_destroy(one);
  }
};
template <class T>
using Owned = std::unique_ptr<T, Destroy>;
using Uri = Owned<mongoc_uri_t>;

// A class of its own: the type demands an alignment, which templates' arguments cannot.
class Bson {
 public:
  Bson() : Bson(::bson_new()) {}
  explicit Bson(bson_t* bson) : bson_(bson) {}
  ~Bson() { ::bson_destroy(bson_); }
  Bson(const Bson&) = delete;
  Bson& operator=(const Bson&) = delete;
  bson_t* get() { return bson_; }
  const bson_t* get() const { return bson_; }

 private:
  bson_t* const bson_;
};

// What a command fills in, whatever becomes of it.
class Reply {
 public:
  Reply() { ::bson_init(&bson_); }
  ~Reply() { ::bson_destroy(&bson_); }
  Reply(const Reply&) = delete;
  Reply& operator=(const Reply&) = delete;
  bson_t* get() { return &bson_; }

 private:
  bson_t bson_;
};

// Once for the process; what the library would log is told as errors.
class Library {
 public:
  Library() {
    ::mongoc_init();
    ::mongoc_log_set_handler(nullptr, nullptr);
  }
  ~Library() { ::mongoc_cleanup(); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
};

void need_library() { static const Library library; }

std::string id_of(const bson_iter_t& field) {
  if (BSON_ITER_HOLDS_OID(&field)) {
    char text[25];
    ::bson_oid_to_string(::bson_iter_oid(&field), text);
    return text;
  }
  if (BSON_ITER_HOLDS_UTF8(&field)) {
    std::uint32_t size = 0;
    const char* text = ::bson_iter_utf8(&field, &size);
    return {text, size};
  }
  return BSON_ITER_HOLDS_INT(&field) ? std::to_string(::bson_iter_as_int64(&field)) : "";
}

Value value_of(const bson_iter_t& field) {
  if (BSON_ITER_HOLDS_UTF8(&field)) {
    std::uint32_t size = 0;
    const char* text = ::bson_iter_utf8(&field, &size);
    return std::string(text, size);
  }
  if (BSON_ITER_HOLDS_INT(&field)) return std::int64_t{::bson_iter_as_int64(&field)};
  if (BSON_ITER_HOLDS_DOUBLE(&field)) return ::bson_iter_double(&field);
  return {};
}

Result<Row> row_of_document(const bson_t& document) {
  std::size_t where = 0;
  bson_iter_t field;
  if (!::bson_validate(&document, BSON_VALIDATE_UTF8, &where) ||
      !::bson_iter_init(&field, &document)) {
    return Error{ErrorCode::kInvalid, "the document is damaged"};
  }
  if (document.len > kRowBytesMax) return Error{ErrorCode::kLimit, "the document is too large"};
  Row row;
  while (::bson_iter_next(&field)) {
    const char* key = ::bson_iter_key(&field);
    if (std::string_view(key) == "_id") {
      row.id = id_of(field);
    } else {
      row.fields.emplace(key, value_of(field));
    }
  }
  return row;
}

// Nobody waits for ever, whatever the URI says or leaves open.
void bound(mongoc_uri_t* uri, const char* option, std::int32_t otherwise) {
  const std::int32_t said = ::mongoc_uri_get_option_as_int32(uri, option, otherwise);
  const std::int32_t used = said < 1 ? otherwise : std::min(said, kPatienceMsMax);
  ::mongoc_uri_set_option_as_int32(uri, option, used);
}

Result<Uri> parse(const MongoSettings& settings) {
  bson_error_t error;
  Uri uri(::mongoc_uri_new_with_error(settings.uri.c_str(), &error));
  if (!uri) {
    // It may quote what it does not understand, and that may be secret.
    return Error{ErrorCode::kInvalid,
                 "requirements.mongodb: the URI of " + shown_uri(settings.uri) +
                     " cannot be understood: write what is special in a name or password as %XX"};
  }
  bound(uri.get(), MONGOC_URI_CONNECTTIMEOUTMS, kConnectMs);
  bound(uri.get(), MONGOC_URI_SERVERSELECTIONTIMEOUTMS, kConnectMs);
  bound(uri.get(), MONGOC_URI_SOCKETTIMEOUTMS, kAnswerMs);
  return uri;
}

class MongoSource final : public Source {
 public:
  MongoSource(MongoSettings settings, Uri uri)
      : settings_(std::move(settings)), uri_(std::move(uri)) {}

  Result<Answer> read(const std::function<bool()>& stopping) override {
    if (Status status = connect(); !status) return status.error();
    auto answer = find(stopping);
    // What has failed is begun anew: the library would not try again for some seconds.
    if (!answer) client_.reset();
    return answer;
  }

 private:
  Status connect() {
    if (client_) return {};
    if (!settings_.password_file.empty()) {
      auto password = control::read_file(settings_.password_file);
      if (!password) return password.error();
      while (password->ends_with('\n') || password->ends_with('\r')) password->pop_back();
      if (!::mongoc_uri_set_password(uri_.get(), password->c_str())) {
        return Error{ErrorCode::kInvalid, settings_.password_file + " has no password"};
      }
    }
    bson_error_t error;
    client_.reset(::mongoc_client_new_from_uri_with_error(uri_.get(), &error));
    if (!client_) return failure(error);
    ::mongoc_client_set_error_api(client_.get(), MONGOC_ERROR_API_VERSION_2);
    ::mongoc_client_set_appname(client_.get(), "flyt-cluster-manager");
    return {};
  }

  // Command by command: the library's own cursors end the process where a document is damaged.
  Result<Answer> find(const std::function<bool()>& stopping) {
    const auto server = select_server();
    if (!server) return server.error();
    const Instant until = system_clock().now() + kReadTime;
    Answer answer;
    Bson command;
    ::bson_append_utf8(command.get(), "find", -1, settings_.collection.c_str(), -1);
    const Bson rest(BCON_NEW("projection", "{", "vm_ip", BCON_INT32(1), "host_ip", BCON_INT32(1),
                             "compute_units", BCON_INT32(1), "memory", BCON_INT32(1), "}", "sort",
                             "{", "_id", BCON_INT32(1), "}", "limit",
                             BCON_INT64(std::int64_t{kRowsMax} + 1)));
    ::bson_concat(command.get(), rest.get());
    auto cursor = ask(command, *server, "cursor.firstBatch", answer);
    while (cursor && *cursor != 0) {
      if (stopping()) return Error{ErrorCode::kTimeout, "the cluster manager is stopping"};
      if (system_clock().now() > until) return Error{ErrorCode::kTimeout, "it takes too long"};
      Bson more;
      ::bson_append_int64(more.get(), "getMore", -1, *cursor);
      ::bson_append_utf8(more.get(), "collection", -1, settings_.collection.c_str(), -1);
      cursor = ask(more, *server, "cursor.nextBatch", answer);
    }
    if (!cursor) return cursor.error();
    return answer;
  }

  // A cursor is one server's.
  Result<std::uint32_t> select_server() {
    bson_error_t error;
    const mongoc_read_prefs_t* prefs = ::mongoc_client_get_read_prefs(client_.get());
    const Owned<mongoc_server_description_t> server(
        ::mongoc_client_select_server(client_.get(), false, prefs, &error));
    if (!server) return failure(error);
    return ::mongoc_server_description_id(server.get());
  }

  // Adds the rows of the answer; its cursor, or 0 at the end.
  Result<std::int64_t> ask(const Bson& command, std::uint32_t server, const char* batch,
                           Answer& answer) {
    Bson options;
    ::bson_append_int32(options.get(), "serverId", -1, static_cast<std::int32_t>(server));
    Reply reply;
    bson_error_t error;
    const bool done = ::mongoc_client_read_command_with_opts(
        client_.get(), settings_.database.c_str(), command.get(), nullptr, options.get(),
        reply.get(), &error);
    if (!done) return failure(error);
    const Error damaged{ErrorCode::kInvalid, "its answer is damaged"};
    bson_iter_t top;
    bson_iter_t rows;
    bson_iter_t cursor;
    const bool good = ::bson_iter_init(&top, reply.get()) &&
                      ::bson_iter_find_descendant(&top, batch, &rows) &&
                      BSON_ITER_HOLDS_ARRAY(&rows) && ::bson_iter_init(&top, reply.get()) &&
                      ::bson_iter_find_descendant(&top, "cursor.id", &cursor) &&
                      BSON_ITER_HOLDS_INT(&cursor) && ::bson_iter_recurse(&rows, &top);
    if (!good) return damaged;
    while (::bson_iter_next(&top)) add_row(top, answer);
    return ::bson_iter_as_int64(&cursor);
  }

  static void add_row(const bson_iter_t& field, Answer& answer) {
    std::uint32_t size = 0;
    const std::uint8_t* bytes = nullptr;
    bson_t view;
    Result<Row> row = Error{ErrorCode::kInvalid, "it is no document"};
    if (BSON_ITER_HOLDS_DOCUMENT(&field)) ::bson_iter_document(&field, &size, &bytes);
    if (bytes != nullptr && ::bson_init_static(&view, bytes, size)) row = row_of_document(view);
    if (row) {
      answer.add(*row);
    } else {
      answer.skip("row " + std::to_string(answer.rows() + 1), row.error().message);
    }
  }

  Error failure(const bson_error_t& error) const {
    const char* password = ::mongoc_uri_get_password(uri_.get());
    return {ErrorCode::kLost, without_secret(error.message, password == nullptr ? "" : password)};
  }

  const MongoSettings settings_;
  const Uri uri_;
  Owned<mongoc_client_t> client_;
};

}  // namespace

void forget_counters() { ::shm_unlink(("/mongoc-" + std::to_string(::getpid())).c_str()); }

Result<std::unique_ptr<Source>> make_mongodb(const MongoSettings& settings) {
  need_library();
  auto uri = parse(settings);
  if (!uri) return uri.error();
  return std::unique_ptr<Source>(std::make_unique<MongoSource>(settings, std::move(*uri)));
}

Result<Row> row_of(std::span<const std::byte> document) {
  bson_t view;
  // The library looks at bytes, and cares for no type's alignment.
  const auto* bytes = static_cast<const std::uint8_t*>(static_cast<const void*>(document.data()));
  if (!::bson_init_static(&view, bytes, document.size())) {
    return Error{ErrorCode::kInvalid, "the document is damaged"};
  }
  return row_of_document(view);
}

}  // namespace flyt::cluster::requirements
