// Load: a driver library as a table of its functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "driver/table.h"

namespace flyt::driver {

// A library that is loaded for the rest of the process: drivers do not survive being unloaded.
struct Driver {
  std::string path;  // As the loader found it.
  Table table;
  std::vector<std::string> missing;  // Functions that the library lacks; the table refuses them.
  bool soft = false;                 // It is the software GPU, whatever its path.
};

// What every library of ours that forwards calls exports; a server that loaded one would talk to
// itself.
inline constexpr char kClientMarker[] = "flyt_client_library";
// What the software GPU exports.
inline constexpr char kSoftMarker[] = "flyt_softgpu_library";

// Where `auto` looks for NVIDIA's driver, in this order.
std::vector<std::string> default_driver_paths();

// Loads the driver at `path`, or with "auto" the first that default_driver_paths() offers. Refuses
// Flyt's client library (kDenied), files that are no CUDA driver (kUnsupported, naming the function
// that is missing), and what the loader refuses (kNotFound, with its words).
Result<Driver> load(std::string_view path);

}  // namespace flyt::driver
