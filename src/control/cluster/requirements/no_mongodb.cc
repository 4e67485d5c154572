// What a build without MongoDB says.
#include "control/cluster/requirements/mongodb.h"

namespace flyt::cluster::requirements {

void forget_counters() {}

Result<std::unique_ptr<Source>> make_mongodb(const MongoSettings&) {
  return Error{ErrorCode::kUnsupported,
               "requirements.mongodb: this flyt-cluster-manager was built without MongoDB"
               " (FLYT_MONGODB=OFF)"};
}

}  // namespace flyt::cluster::requirements
