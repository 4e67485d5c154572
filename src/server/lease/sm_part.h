// SmPart: the multiprocessors that a session's primary context works on, as a context of the
// driver.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/annotations.h"
#include "cuda/types.h"
#include "driver/table.h"
#include "server/lease/sm_grant.h"

namespace flyt::server {

// A green context, or the primary one itself. What runs in it keeps it: streams, and graphs that
// were made in it. The green context goes with the last of them, so the last must not be let go
// before its work is done, or where a thread is in the context.
struct SmPart {
  SmPart(const driver::Table& table, SmGrant of, CUcontext native, CUgreenCtx made)
      : driver(table), grant(std::move(of)), context(native), green(made) {}
  ~SmPart() {
    if (green != nullptr) driver.cuGreenCtxDestroy(green);
  }
  SmPart(const SmPart&) = delete;
  SmPart& operator=(const SmPart&) = delete;

  const driver::Table& driver;
  const SmGrant grant;
  const CUcontext context;
  CUgreenCtx green;  // Null: the primary context itself, or one that has died with it.
};

// Makes them. Descriptions of groups have no end at a driver, so each is asked for once. Safe from
// any thread.
class SmParts {
 public:
  explicit SmParts(const driver::Table& driver) : driver_(driver) {}

  // In a device's primary context, which is `primary`. May wait for kernels that run there.
  CUresult make(CUdevice device, CUcontext primary, const SmGrant& grant,
                std::shared_ptr<SmPart>& part) EXCLUDES(mutex_);

 private:
  CUresult describe(CUdevice device, const std::vector<std::uint32_t>& groups,
                    CUdevResourceDesc& description) EXCLUDES(mutex_);

  const driver::Table& driver_;
  Mutex mutex_;
  std::map<std::vector<std::uint32_t>, CUdevResourceDesc> descriptions_ GUARDED_BY(mutex_);
};

}  // namespace flyt::server
