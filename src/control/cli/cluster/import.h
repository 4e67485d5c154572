// Import: VMs from files: our own JSON, or documents of Flyt's database.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "control/cluster.pb.h"

namespace flyt::cli {

// A list of objects, one object with the list "vms" (as `flytctl --json vms` says it), or one
// object a line (as mongoexport writes them). Errors name `file` and the object.
Result<cluster::v1::SetVmsRequest> vms_of(std::string_view text, const std::string& file);

}  // namespace flyt::cli
