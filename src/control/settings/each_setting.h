// All settings of a TOML file, whoever's it is.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "control/settings/settings.h"

namespace flyt::control {

// A key of a file and its place; `section` is empty where it stands in none.
struct SettingPlace {
  std::string section;
  std::string key;
  std::size_t line = 0;
};
// All keys, of files that are not ours, in their order; an error of `take` gets FILE:LINE and the
// key in front. kInvalid: FILE:LINE, it is no TOML.
Status each_setting(std::string_view text, const std::string& file,
                    const std::function<Status(const SettingPlace&, const SettingValue&)>& take);

}  // namespace flyt::control
