#include "control/node/xid_watch.h"

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

#include "control/node/nvml_gpus.h"

namespace flyt::node {
namespace {

constexpr Duration kLooks = std::chrono::seconds(1);
// So that a storm of errors costs little: between two deliveries, and the most of one.
constexpr Duration kRest = std::chrono::milliseconds(100);
constexpr int kAtOnceMax = 1000;
constexpr std::size_t kLinesBytesMax = 4096;

// Lines with numbers that somebody appends to a file; what is there already is past.
class NumberFile {
 public:
  explicit NumberFile(std::string path) : path_(std::move(path)), read_(bytes()) {}

  XidCounts read() {
    const std::streamoff there = bytes();
    if (there < read_) read_ = 0;
    XidCounts counts;
    if (there == read_) return counts;
    std::ifstream file(path_, std::ios::binary);
    file.seekg(read_);
    std::string text(kLinesBytesMax, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file.gcount()));
    std::size_t begin = 0;
    for (std::size_t end = text.find('\n'); end != std::string::npos;
         end = text.find('\n', begin)) {
      std::uint64_t number = 0;
      const auto parsed = std::from_chars(text.data() + begin, text.data() + end, number);
      if (parsed.ec == std::errc()) ++counts[xid_number(number)];
      begin = end + 1;
    }
    // A line without an end is written to yet, unless it never ends.
    const bool endless = begin == 0 && text.size() == kLinesBytesMax;
    read_ += static_cast<std::streamoff>(endless ? text.size() : begin);
    return counts;
  }

 private:
  std::streamoff bytes() const {
    std::ifstream file(path_, std::ios::binary | std::ios::ate);
    return file ? static_cast<std::streamoff>(file.tellg()) : 0;
  }

  const std::string path_;
  std::streamoff read_;
};

}  // namespace

// Software GPUs have errors as they are told to (docs/flyt-server.md).
class XidWatch::SoftXids {
 public:
  explicit SoftXids(const Config& config) {
    const char* const folder = std::getenv("FLYT_SOFTGPU_LOST");
    if (folder == nullptr || *folder == '\0') return;
    for (std::uint32_t i = 0; i < config.soft; ++i) {
      files_.emplace_back(std::string(folder) + "/xid-" + std::to_string(i));
    }
  }
  bool any() const { return !files_.empty(); }
  Heard read() {
    Heard heard;
    for (std::uint32_t i = 0; i < files_.size(); ++i) {
      if (auto counts = files_[i].read(); !counts.empty()) heard[i] = std::move(counts);
    }
    return heard;
  }

 private:
  std::vector<NumberFile> files_;
};

XidWatch::XidWatch(const Config& config, const Log& log, std::function<void()> heard)
    : config_(config),
      log_(log),
      heard_(std::move(heard)),
      soft_(std::make_unique<SoftXids>(config)),
      thread_([this] { config_.soft != 0 ? run_soft() : run_nvml(); }) {}

XidWatch::~XidWatch() {
  {
    const Lock lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  thread_.join();
}

std::map<std::uint32_t, XidCounts> XidWatch::take() {
  const Lock lock(mutex_);
  return std::exchange(waiting_, {});
}

bool XidWatch::stops_before(Instant moment) {
  const Lock lock(mutex_);
  while (!stopping_) {
    const Duration left = moment - system_clock().now();
    if (left <= Duration(0)) break;
    static_cast<void>(stop_.wait_for(mutex_, left));
  }
  return stopping_;
}

void XidWatch::deliver(const Heard& heard) {
  if (heard.empty()) return;
  {
    const Lock lock(mutex_);
    for (const auto& [gpu, counts] : heard) {
      for (const auto& [number, times] : counts) waiting_[gpu][number] += times;
    }
  }
  heard_();
}

void XidWatch::run_soft() {
  if (!soft_->any()) return;
  while (!stops_before(system_clock().now() + kLooks)) deliver(soft_->read());
}

void XidWatch::run_nvml() {
  const auto nvml = NvmlGpus::open(config_.nvml);
  if (!nvml) return;
  do {
    // A driver does not learn it, and a GPU that is lost has nothing more to say.
    if (listen(**nvml) == 0) return;
    hear(**nvml);
  } while (!stops_before(system_clock().now() + kLooks));
}

std::size_t XidWatch::listen(NvmlGpus& nvml) {
  auto listening = nvml.listen();
  for (const auto& [gpu, why] : listening.deaf) {
    if (const auto told = deaf_.find(gpu); told != deaf_.end() && told->second == why) continue;
    log_.warn("Xids are not read", {{"gpu", gpu}, {"why", why}});
  }
  deaf_ = std::move(listening.deaf);
  return listening.gpus;
}

void XidWatch::hear(NvmlGpus& nvml) {
  while (true) {
    const Instant began = system_clock().now();
    Heard heard;
    const bool good = hear_some(nvml, heard);
    deliver(heard);
    // Also if NVML returns at once from whatever it is to wait for.
    if (stops_before(began + kRest) || !good) return;
  }
}

void XidWatch::complain(const std::string& why) {
  if (why == complaint_) return;
  complaint_ = why;
  log_.warn("Xids could not be read", {{"why", why}});
}

bool XidWatch::hear_some(NvmlGpus& nvml, Heard& heard) {
  Duration patience = kLooks;
  for (int i = 0; i < kAtOnceMax; ++i) {
    const auto xid = nvml.hear(patience);
    if (!xid) {
      // Such as of a GPU that is lost; others are heard again.
      complain(xid.error().message);
      return false;
    }
    if (!*xid) {
      complaint_.clear();
      return true;
    }
    if ((*xid)->gpu) {
      ++heard[*(*xid)->gpu][(*xid)->number];
    } else {
      complain(xid_text((*xid)->number) + " of a GPU that NVML does not name");
    }
    patience = Duration(0);
  }
  return true;
}

}  // namespace flyt::node
