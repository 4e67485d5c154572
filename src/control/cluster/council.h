// Council: which of several cluster managers decides, and what this one knows.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/annotations.h"
#include "base/clock.h"
#include "base/log.h"
#include "control/cluster/candidate.h"
#include "control/cluster/etcd_copy.h"
#include "control/cluster/manager.h"

namespace flyt::cluster {

// Who answers a question.
struct Answerer {
  std::shared_ptr<Manager> here;        // Decides.
  std::optional<state::Leader> leader;  // Decides, elsewhere.
  std::string why;                      // Why nobody is known to decide.
  std::string problem;                  // Why what is shared cannot be asked; empty: it can.
};

// What an API asks. Safe from any thread.
class Chair {
 public:
  virtual ~Chair() = default;
  virtual Answerer answerer() = 0;
  // What is known here where nobody who decides answers: to be read only. None: nothing is.
  virtual std::shared_ptr<Manager> known() = 0;
};

// Of one manager alone: it decides, always.
class OnlyChair final : public Chair {
 public:
  // The manager outlives it.
  explicit OnlyChair(Manager& manager) : manager_(std::shared_ptr<void>(), &manager) {}
  Answerer answerer() override { return {manager_, {}, {}, {}}; }
  std::shared_ptr<Manager> known() override { return manager_; }

 private:
  const std::shared_ptr<Manager> manager_;
};

class Council final : public Chair {
 public:
  // Makes a manager over a store; it is not started yet.
  using Make = std::function<std::shared_ptr<Manager>(std::unique_ptr<Store>)>;
  // Begins to do what a manager that decides has to do, until it is told to stop.
  using Staff = std::function<void(const std::shared_ptr<Manager>&)>;
  // `copy`: for what is known where nobody who decides answers; it may be null.
  Council(control::Etcd& etcd, const Clock& clock, const Log& log, Candidate::Settings settings,
          Make make, Staff staff, EtcdCopy* copy)
      : etcd_(etcd),
        log_(log),
        prefix_(settings.prefix),
        make_(std::move(make)),
        staff_(std::move(staff)),
        copy_(copy),
        candidate_(etcd, clock, std::move(settings)) {}

  // Does what is due. Often, by one thread.
  void step();
  // Gives up what it has.
  void stop();

  Answerer answerer() override;
  std::shared_ptr<Manager> known() override;

 private:
  void begin(const std::shared_ptr<Tenure>& tenure);
  void end(const std::string& why);
  void tell();

  control::Etcd& etcd_;
  const Log log_;
  const std::string prefix_;
  const Make make_;
  const Staff staff_;
  EtcdCopy* const copy_;
  // The stepping thread's.
  Candidate candidate_;
  std::shared_ptr<Tenure> taken_;  // What `deciding_` decides by.
  std::string told_;

  Mutex mutex_;
  std::shared_ptr<Manager> deciding_ GUARDED_BY(mutex_);
  // The last one that decided here, if nobody else has since; or one over the copy.
  std::shared_ptr<Manager> known_ GUARDED_BY(mutex_);
  std::uint64_t copied_ GUARDED_BY(mutex_) = 0;  // The copy's revision; 0: it is none.
  std::optional<state::Leader> leader_ GUARDED_BY(mutex_);
  std::string problem_ GUARDED_BY(mutex_);  // Of etcd.
  std::string failure_ GUARDED_BY(mutex_);  // Why the last tenure here has ended, or was not begun.
};

}  // namespace flyt::cluster
