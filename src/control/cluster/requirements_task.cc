#include "control/cluster/requirements_task.h"

#include "control/cluster/requirements/mongodb.h"
#include "control/cluster/requirements_follower.h"

namespace flyt::cluster {

Result<Workers::Tasks> tasks_of(const Config& config, const Log& log) {
  if (config.mongodb.empty()) return Workers::Tasks();
  const requirements::MongoSettings settings{.uri = config.mongodb,
                                             .database = config.mongodb_database,
                                             .collection = config.mongodb_collection,
                                             .password_file = config.mongodb_password_file};
  // What cannot be understood is told at once.
  if (const auto probe = requirements::make_mongodb(settings); !probe) return probe.error();
  const std::string where =
      requirements::shown_uri(settings.uri) + " " + settings.database + "." + settings.collection;
  const Duration period = std::chrono::seconds(config.requirements_seconds);
  return Workers::Tasks{[settings, where, period, log](Manager& manager) {
    const auto make = [&settings] { return requirements::make_mongodb(settings); };
    RequirementsFollower(manager, make, where, log).follow(period);
  }};
}

}  // namespace flyt::cluster
