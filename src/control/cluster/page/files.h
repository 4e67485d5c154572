// The files of the cluster's page, as the program carries them.
#pragma once

#include <string_view>

namespace flyt::cluster::page {

std::string_view index_html();
std::string_view page_css();
std::string_view page_js();

}  // namespace flyt::cluster::page
