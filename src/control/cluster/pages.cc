#include "control/cluster/pages.h"

#include "base/listening.h"
#include "base/log_limit.h"
#include "control/cluster/documents.h"
#include "control/cluster/metrics.h"
#include "control/cluster/page/files.h"
#include "control/daemon/metrics_page.h"
#include "control/daemon/page_token.h"

namespace flyt::cluster {
namespace {

using control::Page;
using control::PageRequest;

Page metrics(Manager& manager) {
  const auto nodes = manager.nodes("");
  const auto vms = manager.vms("");
  return {.text = metrics_text(manager.describe(), nodes ? *nodes : v1::ListNodesResponse(),
                               vms ? *vms : v1::ListVmsResponse(), manager.counters(),
                               manager.problems().empty()),
          .type = std::string(control::kMetricsType)};
}

// Ready: the state can be written, and some node takes virtual GPUs. What VMs shall get may be old.
Page ready(Manager& manager) {
  if (!manager.writable()) return {.text = "the state cannot be written\n", .status = 503};
  if (manager.describe().nodes_ready() == 0) {
    return {.text = "no node takes virtual GPUs\n", .status = 503};
  }
  const std::string old = manager.requirements_problem();
  return {.text = old.empty() ? "ok\n" : "ok\n" + old + "\n"};
}

Page council_metrics(Chair& chair) {
  const Answerer who = chair.answerer();
  const bool decides = who.here && who.here->decides();
  control::MetricsPage page;
  page.one("flyt_cluster_decides", "gauge", "1 if this manager decides.", decides ? 1 : 0);
  page.one("flyt_cluster_leader_known", "gauge", "1 if some manager decides, as far as is known.",
           decides || who.leader ? 1 : 0);
  page.one("flyt_cluster_etcd_answers", "gauge", "1 if etcd answered last.",
           who.problem.empty() ? 1 : 0);
  const auto known = decides ? who.here : chair.known();
  Page all = known ? metrics(*known) : Page{.type = std::string(control::kMetricsType)};
  all.text += page.take();
  return all;
}

// Ready: questions and changes are answered, here or by who decides.
Page council_ready(Chair& chair) {
  const Answerer who = chair.answerer();
  if (!who.problem.empty()) return {.text = who.problem + "\n", .status = 503};
  if (who.here) return ready(*who.here);
  if (who.leader) return {.text = "ok: " + who.leader->name() + " decides\n"};
  return {.text = who.why + "\n", .status = 503};
}

constexpr char kJson[] = "application/json";
constexpr Duration kPatience = std::chrono::milliseconds(500);

Result<Caller> viewer_of(Gate& gate, const std::string& certificate) {
  auto caller = gate.caller_of(certificate, "page");
  if (!caller) return caller;
  if (Status status = need(*caller, Role::kViewer); !status) return status.error();
  return caller;
}

control::PageMaker file(std::string_view text, const char* type) {
  return [text, type](const PageRequest&) { return Page{.text = std::string(text), .type = type}; };
}

Page json_or(const Result<std::string>& json) {
  if (json) return {.text = *json, .type = kJson};
  const ErrorCode code = json.error().code;
  return {.text = json.error().message + "\n",
          .status = code == ErrorCode::kNotFound  ? 404
                    : code == ErrorCode::kInvalid ? 400
                                                  : 500};
}

void follow(Gate& gate, Documents& documents, const PageRequest& request,
            control::PageStream& out) {
  auto caller = viewer_of(gate, request.certificate);
  if (!caller) return;
  DocumentStream stream(documents, *caller);
  while (out.open()) {
    const auto document = stream.next(kPatience);
    // Who was let in may have been revoked since.
    if (!viewer_of(gate, request.certificate)) return;
    if (document && !out.send(document->name, *document->json)) return;
  }
}

// The metrics' pages, the web page, its documents below /api/v1/ and the stream of their changes.
// Who asks has shown a certificate; `gate` says whether it is a viewer's, for each request and all
// along a stream.
control::PageMap site_of(control::PageMap map, Gate& gate, Documents& documents) {
  map.admit = [&gate](const PageRequest& request) -> Status {
    const auto caller = viewer_of(gate, request.certificate);
    return caller ? Status() : Status(caller.error());
  };
  map.pages["/"] = file(page::index_html(), "text/html; charset=utf-8");
  map.pages["/page.css"] = file(page::page_css(), "text/css; charset=utf-8");
  map.pages["/page.js"] = file(page::page_js(), "text/javascript; charset=utf-8");
  for (const char* name : {"cluster", "health", "nodes", "leases", "vms", "queue", "events"}) {
    map.pages[std::string("/api/v1/") + name] = [&gate, &documents,
                                                 name](const PageRequest& asked) {
      const auto caller = viewer_of(gate, asked.certificate);
      const auto match = asked.query.find("match");
      return json_or(caller ? documents.document(
                                  name, *caller,
                                  match == asked.query.end() ? std::string_view() : match->second)
                            : caller.error());
    };
  }
  map.pages["/api/v1/explain"] = [&documents](const PageRequest& request) {
    const auto vm = request.query.find("vm");
    return json_or(documents.explain(vm == request.query.end() ? "" : vm->second));
  };
  map.streams["/api/v1/watch"] = [&](const PageRequest& request, control::PageStream& out) {
    follow(gate, documents, request, out);
  };
  return map;
}

// Whether a certificate's holder may see anything; what is refused is logged.
control::PageTls site_tls(const Config& config, Gate& gate, const Log& log) {
  return {.files = {config.cert, config.key, config.ca},
          .admit = [&gate, log, lines = std::make_shared<LogLimit>()](
                       const std::string& certificate) -> Status {
            const auto caller = viewer_of(gate, certificate);
            if (caller) return {};
            LimitedLog(log, *lines)
                .warn("refused", {{"peer", "page"}, {"reason", caller.error().message}});
            return caller.error();
          }};
}

Result<std::unique_ptr<control::Pages>> serve(const char* key, const std::string& address,
                                              control::PageMap map,
                                              std::optional<control::PageTls> tls) {
  if (address.empty()) return std::unique_ptr<control::Pages>();
  auto pages =
      control::Pages::start(*control::parse_address(address), std::move(map), std::move(tls));
  if (pages) return pages;
  const Error error = with_listening_advice(pages.error(), key);
  return Error{error.code, std::string(key) + ": " + error.message};
}

class AllPages final : public ClusterPages {
 public:
  AllPages(Chair& chair, const std::string& name, std::string_view version)
      : documents_(chair, name, std::string(version), system_clock()) {}

  Status start(const Config& config, const control::PageMap& map, Gate& gate, const Log& log) {
    control::PageMap plain = map;
    plain.admit = control::admit_token(config.metrics_token);
    auto metrics = serve("metrics.listen", config.metrics, std::move(plain), std::nullopt);
    if (!metrics) return metrics.error();
    metrics_ = std::move(*metrics);
    auto site = serve("page.listen", config.page, site_of(map, gate, documents_),
                      site_tls(config, gate, log));
    if (!site) return site.error();
    site_ = std::move(*site);
    return {};
  }

 private:
  Documents documents_;
  std::unique_ptr<control::Pages> metrics_;
  std::unique_ptr<control::Pages> site_;
};

}  // namespace

control::PageMap pages_of(Chair& chair) {
  control::PageMap map;
  map.pages = {{"/metrics", [&chair](const PageRequest&) { return council_metrics(chair); }},
               {"/healthz", [](const PageRequest&) { return Page{.text = "ok\n"}; }},
               {"/readyz", [&chair](const PageRequest&) { return council_ready(chair); }}};
  return map;
}

control::PageMap pages_of(Manager& manager) {
  control::PageMap map;
  map.pages = {{"/metrics", [&manager](const PageRequest&) { return metrics(manager); }},
               {"/healthz", [](const PageRequest&) { return Page{.text = "ok\n"}; }},
               {"/readyz", [&manager](const PageRequest&) { return ready(manager); }}};
  return map;
}

Result<std::unique_ptr<ClusterPages>> ClusterPages::start(const Config& config,
                                                          const control::PageMap& map, Chair& chair,
                                                          Gate& gate, const Log& log,
                                                          std::string_view version) {
  auto pages = std::make_unique<AllPages>(chair, config.name, version);
  if (Status status = pages->start(config, map, gate, log); !status) return status.error();
  return std::unique_ptr<ClusterPages>(std::move(pages));
}

}  // namespace flyt::cluster
