// The command line of a program: its commands, options and flags, their help, and where what was
// given goes. Only command_line.cc sees the headers of CLI11, which does it: they are slow.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace flyt {

// One option or positional argument of a command, to say more about.
class CommandOption {
 public:
  explicit CommandOption(CLI::Option* option) : option_(option) {}

  // What the help calls its value.
  CommandOption& type_name(const std::string& name);
  CommandOption& required(bool is = true);
  CommandOption& range(std::uint64_t least, std::uint64_t most);
  CommandOption& one_of(const std::vector<std::string>& values);
  // As parse_size() takes it.
  CommandOption& size();
  // Repeatable; each time it takes one value.
  CommandOption& take_all();
  CommandOption& delimiter(char between);
  CommandOption& environment(const std::string& name);
  // The help tells what it is if it is not given: what it is now, or this.
  CommandOption& show_default();
  CommandOption& show_default(const std::string& text);

 private:
  CLI::Option* option_;
};

// A command, which may have others; for the program as a whole see CommandLine. Copies are the same
// command.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  Command add_command(const std::string& name, const std::string& about) const;
  // "--name", "-n,--name", or "name" where it stands by itself. Value is a text, a whole number, an
  // optional of these or a vector.
  template <class Value>
  CommandOption add_option(const std::string& names, Value& value,
                           const std::string& about = {}) const;
  // bool, or an optional of it; "--name,!--no-name" can be either.
  template <class Value>
  CommandOption add_flag(const std::string& names, Value& value, const std::string& about) const;

  void footer(const std::string& text) const;
  void require_command() const;
  // Options of the command that this one belongs to may stand behind it.
  void fallthrough() const;
  // Whatever stands behind it is let through.
  void allow_anything() const;
  // Once positional arguments have begun no more options come.
  void positionals_at_end() const;
  // What options tell of their defaults that are added from now on: all of it.
  void show_defaults() const;

  std::string name() const;
  // All that it has.
  std::vector<Command> commands() const;
  // Its options, "--name", and those of all its commands, whose values are among few; with these.
  // Of two of one name: what either takes.
  std::map<std::string, std::vector<std::string>> choices() const;
  // Whether it was given, and which of its commands were.
  bool given() const;
  std::vector<Command> given_commands() const;

 protected:
  CLI::App* app_;
};

class CommandLine : public Command {
 public:
  // --help and --version are there.
  CommandLine(const std::string& program, const std::string& about);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Fills what the options were given. An exit status if there is nothing left to do: help was
  // printed (0), or what is wrong (`wrong`).
  std::optional<int> parse(int argc, char** argv, int wrong);
  // With what a program ends: `status`, or 1 if that was 0 and what it printed has got nowhere, on
  // a full disk for example, which is then told.
  int finish(int status) const;

 private:
  std::unique_ptr<CLI::App> owned_;
};

}  // namespace flyt
