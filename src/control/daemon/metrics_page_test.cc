#include "control/daemon/metrics_page.h"

#include <gtest/gtest.h>

namespace flyt::control {
namespace {

TEST(MetricsPage, WritesFamiliesWithAndWithoutLabels) {
  MetricsPage page;
  page.one("a_total", "counter", "As.", 7);
  page.family("b", "gauge", "Bs.");
  page.value({{"x", "1"}, {"y", "2"}}, 3);
  page.value({{"x", "4"}, {"y", "5"}}, 6);
  EXPECT_EQ(page.take(),
            "# HELP a_total As.\n# TYPE a_total counter\na_total 7\n"
            "# HELP b Bs.\n# TYPE b gauge\nb{x=\"1\",y=\"2\"} 3\nb{x=\"4\",y=\"5\"} 6\n");
}

TEST(MetricsPage, ALabelCannotEndItsLineOrItsQuotes) {
  MetricsPage page;
  page.family("a", "gauge", "As.");
  page.value({{"x", "q\"b\\n\n\x7f\xff"}}, 1);
  EXPECT_EQ(page.take(), "# HELP a As.\n# TYPE a gauge\na{x=\"q\\\"b\\\\n???\"} 1\n");
}

}  // namespace
}  // namespace flyt::control
