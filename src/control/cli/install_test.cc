#include "control/cli/install.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

namespace flyt::cli {
namespace {

namespace fs = std::filesystem;

// A small system in a folder, with a library that ldconfig takes for one.
class InstallTest : public ::testing::Test {
 protected:
  InstallTest() {
    options_.root = std::string(::testing::TempDir()) + "install-" + std::to_string(::getpid());
    fs::remove_all(options_.root);
    options_.library = "/opt/flyt/lib/client";
    write("/etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n");
    fs::create_directories(at("/lib"));
    fs::create_directories(at("/usr/lib"));
    for (const char* name : {"libcuda.so.1", "libnvidia-ml.so.1"}) {
      library("/opt/flyt/lib/client", name);
    }
  }
  ~InstallTest() override { fs::remove_all(options_.root); }

  std::string at(const std::string& path) const { return options_.root + path; }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(at(path)).parent_path());
    std::ofstream(at(path), std::ios::binary) << text;
  }
  // What the linker makes of nothing, with the name inside.
  void library(const std::string& folder, const std::string& name) {
    fs::create_directories(at(folder));
    const std::string command = "cc -shared -nostdlib -x c /dev/null -Wl,-soname," + name + " -o " +
                                at(folder + "/" + name);
    ASSERT_EQ(std::system(command.c_str()), 0);
  }
  // Everything about the system that somebody could notice.
  std::map<std::string, std::string> system() const {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(options_.root)) {
      struct stat file {};
      EXPECT_EQ(::lstat(entry.path().c_str(), &file), 0);
      std::ostringstream text;
      text << std::oct << file.st_mode << ' ' << std::dec << file.st_uid << ' ' << file.st_gid
           << ' ' << file.st_mtim.tv_sec << '.' << file.st_mtim.tv_nsec << ' ';
      if (entry.is_regular_file()) text << std::ifstream(entry.path(), std::ios::binary).rdbuf();
      all[entry.path().string()] = text.str();
    }
    return all;
  }
  void expect_as_before(const std::map<std::string, std::string>& before) const {
    const auto now = system();
    for (const auto& [path, state] : before) {
      ASSERT_TRUE(now.count(path)) << path << " is gone";
      EXPECT_EQ(now.at(path) == state, true) << path << " is not as it was";
    }
    for (const auto& [path, state] : now) EXPECT_TRUE(before.count(path)) << path << " is new";
  }
  void make_cache() {
    const std::string command = "/sbin/ldconfig -X -r " + options_.root;
    ASSERT_EQ(std::system(command.c_str()), 0);
  }
  std::string install() {
    const auto done = install_client(options_);
    return done ? "" : done.error().message;
  }
  std::string restore() {
    const auto done = restore_client(options_);
    return done ? "" : done.error().message;
  }

  InstallOptions options_;
};

TEST_F(InstallTest, RestoreLeavesNoTrace) {
  const auto before = system();
  EXPECT_EQ(install(), "");
  EXPECT_TRUE(fs::exists(at("/etc/ld.so.conf.d/00-flyt.conf")));
  EXPECT_EQ(restore(), "");
  expect_as_before(before);
}

TEST_F(InstallTest, RestoreBringsBackACacheThatWasThereByteForByte) {
  library("/usr/lib/nvidia", "libcuda.so.1");
  write("/etc/ld.so.conf.d/nvidia.conf", "/usr/lib/nvidia\n");
  write("/var/lib/flyt/node/state", "another role's");
  make_cache();
  ::chmod(at("/etc/ld.so.cache").c_str(), 0640);
  const auto before = system();
  EXPECT_EQ(install(), "");
  EXPECT_EQ(restore(), "");
  expect_as_before(before);
}

TEST_F(InstallTest, ComesBeforeAnotherDriver) {
  library("/usr/lib/nvidia", "libcuda.so.1");
  library("/usr/lib/nvidia", "libnvidia-ml.so.1");
  write("/etc/ld.so.conf.d/nvidia.conf", "/usr/lib/nvidia\n");
  make_cache();
  EXPECT_EQ(install(), "") << "it looks itself who comes first";
}

TEST_F(InstallTest, TakesItBackWhereProgramsWouldLoadAnother) {
  library("/usr/lib/nvidia", "libcuda.so.1");
  write("/etc/ld.so.conf", "/usr/lib/nvidia\ninclude /etc/ld.so.conf.d/*.conf\n");
  const auto before = system();
  EXPECT_NE(install().find("programs would load /usr/lib/nvidia/libcuda.so.1"), std::string::npos);
  expect_as_before(before);
  write("/etc/ld.so.conf", "");
  EXPECT_NE(install().find("does /etc/ld.so.conf include"), std::string::npos);
}

TEST_F(InstallTest, IsNotDoneTwice) {
  EXPECT_NE(restore().find("not installed"), std::string::npos);
  EXPECT_EQ(install(), "");
  EXPECT_NE(install().find("installed already"), std::string::npos);
  EXPECT_EQ(restore(), "");
  EXPECT_NE(restore().find("not installed"), std::string::npos);
  EXPECT_EQ(install(), "");
}

TEST_F(InstallTest, AnInstallationThatWasCutOffIsUndone) {
  make_cache();
  const auto before = system();
  EXPECT_EQ(install(), "");
  // As if it had ended before it was finished, and had written only half of it.
  fs::remove(at("/var/lib/flyt-install/after"));
  write("/etc/ld.so.conf.d/00-flyt.conf", "/opt");
  EXPECT_EQ(restore(), "");
  expect_as_before(before);
}

TEST_F(InstallTest, LeavesWhatOthersChangedSince) {
  make_cache();
  EXPECT_EQ(install(), "");
  library("/usr/lib/other", "libother.so.1");
  write("/etc/ld.so.conf.d/other.conf", "/usr/lib/other\n");
  make_cache();
  const auto done = restore_client(options_);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_NE(done->find("/etc/ld.so.cache"), std::string::npos);
  EXPECT_FALSE(fs::exists(at("/etc/ld.so.conf.d/00-flyt.conf")));
  EXPECT_TRUE(fs::exists(at("/etc/ld.so.conf.d/other.conf")));
  std::ostringstream cache;
  cache << std::ifstream(at("/etc/ld.so.cache"), std::ios::binary).rdbuf();
  EXPECT_NE(cache.str().find("libother.so.1"), std::string::npos);
  EXPECT_EQ(cache.str().find("flyt"), std::string::npos);
}

TEST_F(InstallTest, DoesNotRemoveAnEntryThatSomebodyEdited) {
  EXPECT_EQ(install(), "");
  write("/etc/ld.so.conf.d/00-flyt.conf", "/opt/mine\n");
  EXPECT_NE(restore().find("was changed since"), std::string::npos);
  fs::remove(at("/etc/ld.so.conf.d/00-flyt.conf"));
  EXPECT_EQ(restore(), "");
}

TEST_F(InstallTest, TouchesNothingWhereItCannotWork) {
  const auto before = system();
  options_.library = "relative";
  EXPECT_NE(install().find("absolute"), std::string::npos);
  options_.library = "/nowhere";
  EXPECT_NE(install().find("is not there; --library DIR"), std::string::npos);
  options_.library = "/opt/flyt/lib/client";
  options_.ldconfig = "/bin/false";
  EXPECT_NE(install().find("/bin/false failed"), std::string::npos);
  expect_as_before(before);
  options_.ldconfig.clear();
  write("/etc/ld.so.conf.d/00-flyt.conf", "/somebody/elses\n");
  const auto with_another = system();
  EXPECT_NE(install().find("not ours"), std::string::npos);
  expect_as_before(with_another);
}

TEST_F(InstallTest, ADamagedJournalChangesNothing) {
  EXPECT_EQ(install(), "");
  write("/var/lib/flyt-install/before", "f 1 2\n");
  const auto before = system();
  EXPECT_NE(restore().find("is damaged"), std::string::npos);
  expect_as_before(before);
}

TEST_F(InstallTest, AJournalOfOtherFilesChangesNothing) {
  write("/etc/shadow", "secret");
  EXPECT_EQ(install(), "");
  std::ostringstream index;
  index << std::ifstream(at("/var/lib/flyt-install/before")).rdbuf();
  std::string text = index.str();
  const std::string entry = "/etc/ld.so.cache\n";
  text.replace(text.find(entry), entry.size(), "/etc/shadow\n");
  write("/var/lib/flyt-install/before", text);
  EXPECT_NE(restore().find("is damaged"), std::string::npos);
  EXPECT_TRUE(fs::exists(at("/etc/shadow")));
}

}  // namespace
}  // namespace flyt::cli
