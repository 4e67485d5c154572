#include "bin/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <iostream>

#include "base/result.h"
#include "base/text.h"

namespace flyt {
namespace {

// What the check of an option is called that takes one of a few values. CLI11 describes it by them:
// "{one,another}".
constexpr char kAmongFew[] = "among-few";

std::vector<std::string> values_of(CLI::Option& option) {
  std::vector<std::string> values;
  std::string text;
  try {
    text = option.get_validator(kAmongFew)->get_description();
  } catch (const CLI::OptionNotFound&) {
    return values;
  }
  for (std::string_view left = std::string_view(text).substr(1); !left.empty();) {
    const std::size_t end = left.find_first_of(",}");
    values.emplace_back(left.substr(0, end));
    left.remove_prefix(std::min(left.size(), end + 1));
  }
  return values;
}

// Of a number that is none CLI11 says "Could not convert: --sms = -8".
std::string no_number(const std::string& said) {
  constexpr std::string_view kFront = "Could not convert: ";
  const std::size_t between = said.find(" = ");
  if (!said.starts_with(kFront) || between == std::string::npos) return said;
  return said.substr(kFront.size(), between - kFront.size()) + ": '" + said.substr(between + 3) +
         "' is no number, or none that it takes";
}

// What nobody knows explains what is missing: an option that is misspelled, a command that there is
// not. CLI11 tells of what is missing alone.
std::string reason(const CLI::App* app, const CLI::App* command, const CLI::Error& error) {
  const auto is = [&](CLI::ExitCodes code) {
    return error.get_exit_code() == static_cast<int>(code);
  };
  const bool missing = is(CLI::ExitCodes::RequiredError);
  if (is(CLI::ExitCodes::ConversionError)) return no_number(error.what());
  std::vector<std::string> unknown = app->remaining(true);
  unknown.erase(std::remove(unknown.begin(), unknown.end(), "--"), unknown.end());
  if ((missing || is(CLI::ExitCodes::ExtrasError)) && !unknown.empty() &&
      unknown.front().starts_with("-")) {
    return "there is no option " + unknown.front();
  }
  const auto commands = command->get_subcommands([](const CLI::App*) { return true; });
  if (!missing || commands.empty()) return error.what();
  std::string there;
  for (const CLI::App* one : commands) there += (there.empty() ? "" : ", ") + one->get_name();
  if (unknown.empty()) return "a command is missing; there are: " + there;
  return "there is no command " + unknown.front() + "; there are: " + there;
}

// What is wrong, and where to read on: at the command that was given.
std::string mistake(const CLI::App* app, const CLI::Error& error) {
  std::string words = app->get_name();
  const CLI::App* at = app;
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    words += " " + at->get_name();
  }
  return app->get_name() + ": " + reason(app, at, error) + "\n" + words + " --help tells more\n";
}

}  // namespace

CommandOption& CommandOption::type_name(const std::string& name) {
  option_->type_name(name);
  return *this;
}

CommandOption& CommandOption::required(bool is) {
  option_->required(is);
  return *this;
}

CommandOption& CommandOption::range(std::uint64_t least, std::uint64_t most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

CommandOption& CommandOption::one_of(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values), kAmongFew);
  return *this;
}

CommandOption& CommandOption::size() {
  option_->transform(CLI::Validator(
      [](std::string& text) {
        const auto bytes = parse_size(text);
        if (!bytes) return bytes.error().message;
        text = std::to_string(*bytes);
        return std::string();
      },
      ""));
  return *this;
}

CommandOption& CommandOption::take_all() {
  option_->take_all()->allow_extra_args(false);
  return *this;
}

CommandOption& CommandOption::delimiter(char between) {
  option_->delimiter(between);
  return *this;
}

CommandOption& CommandOption::environment(const std::string& name) {
  option_->envname(name);
  return *this;
}

CommandOption& CommandOption::show_default() {
  option_->capture_default_str();
  return *this;
}

CommandOption& CommandOption::show_default(const std::string& text) {
  option_->default_str(text);
  return *this;
}

Command Command::add_command(const std::string& name, const std::string& about) const {
  return Command(app_->add_subcommand(name, about));
}

template <class Value>
CommandOption Command::add_option(const std::string& names, Value& value,
                                  const std::string& about) const {
  CLI::Option* option = app_->add_option(names, value, about);
  // A list that is empty is no default to tell of.
  if (option->get_default_str() == "[]") option->default_str("");
  // Of such numbers alone CLI11 takes those below zero, for ones that are very large.
  if constexpr (std::is_same_v<Value, std::uint64_t>) {
    option->check(CLI::Validator(
        [](std::string& text) {
          return text.starts_with('-') ? "'" + text + "' is no number from 0 on" : std::string();
        },
        ""));
  }
  return CommandOption(option);
}

template CommandOption Command::add_option(const std::string&, std::string&,
                                           const std::string&) const;
template CommandOption Command::add_option(const std::string&, std::int32_t&,
                                           const std::string&) const;
template CommandOption Command::add_option(const std::string&, std::uint16_t&,
                                           const std::string&) const;
template CommandOption Command::add_option(const std::string&, std::uint32_t&,
                                           const std::string&) const;
template CommandOption Command::add_option(const std::string&, std::uint64_t&,
                                           const std::string&) const;
template CommandOption Command::add_option(const std::string&, std::optional<std::string>&,
                                           const std::string&) const;
template CommandOption Command::add_option(const std::string&, std::optional<std::int32_t>&,
                                           const std::string&) const;
template CommandOption Command::add_option(const std::string&, std::optional<std::uint32_t>&,
                                           const std::string&) const;
template CommandOption Command::add_option(const std::string&, std::vector<std::string>&,
                                           const std::string&) const;
template CommandOption Command::add_option(const std::string&, std::vector<std::uint32_t>&,
                                           const std::string&) const;

template <class Value>
CommandOption Command::add_flag(const std::string& names, Value& value,
                                const std::string& about) const {
  return CommandOption(app_->add_flag(names, value, about));
}

template CommandOption Command::add_flag(const std::string&, bool&, const std::string&) const;
template CommandOption Command::add_flag(const std::string&, std::optional<bool>&,
                                         const std::string&) const;

void Command::footer(const std::string& text) const { app_->footer(text); }

void Command::require_command() const { app_->require_subcommand(1); }

void Command::fallthrough() const { app_->fallthrough(); }

void Command::allow_anything() const { app_->fallthrough(false)->allow_extras(); }

void Command::positionals_at_end() const { app_->positionals_at_end(); }

void Command::show_defaults() const { app_->option_defaults()->always_capture_default(); }

std::string Command::name() const { return app_->get_name(); }

std::vector<Command> Command::commands() const {
  std::vector<Command> all;
  for (CLI::App* one : app_->get_subcommands({})) all.emplace_back(one);
  return all;
}

std::map<std::string, std::vector<std::string>> Command::choices() const {
  std::map<std::string, std::vector<std::string>> all;
  const auto add = [&all](const std::string& name, const std::vector<std::string>& values) {
    std::vector<std::string>& known = all[name];
    for (const std::string& value : values) {
      if (std::find(known.begin(), known.end(), value) == known.end()) known.push_back(value);
    }
  };
  for (CLI::Option* option : app_->get_options({})) {
    const std::vector<std::string> values = values_of(*option);
    if (values.empty()) continue;
    for (const std::string& name : option->get_lnames()) add("--" + name, values);
  }
  for (const Command& command : commands()) {
    for (const auto& [name, values] : command.choices()) add(name, values);
  }
  return all;
}

bool Command::given() const { return app_->parsed(); }

std::vector<Command> Command::given_commands() const {
  std::vector<Command> all;
  for (CLI::App* one : app_->get_subcommands()) all.emplace_back(one);
  return all;
}

CommandLine::CommandLine(const std::string& program, const std::string& about)
    : Command(nullptr), owned_(std::make_unique<CLI::App>(about, program)) {
  app_ = owned_.get();
  app_->set_version_flag("--version", FLYT_VERSION);
  app_->failure_message(&mistake);
}

CommandLine::~CommandLine() = default;

std::optional<int> CommandLine::parse(int argc, char** argv, int wrong) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return finish(app_->exit(error) == 0 ? 0 : wrong);
  }
  return {};
}

int CommandLine::finish(int status) const {
  // Why it failed before now nobody knows any more.
  const bool now = std::cout.good();
  if (std::cout.flush() || status != EXIT_SUCCESS) return status;
  const std::string what = "cannot write to the standard output";
  std::cerr << name() << ": "
            << (now ? system_error(what, errno).message : what + "; is the disk full?") << "\n";
  return EXIT_FAILURE;
}

}  // namespace flyt
