#include "control/cli/completion.h"

namespace flyt::cli {
namespace {

constexpr std::string_view kBash = R"(_flyt() {
  local word=${COMP_WORDS[COMP_CWORD]} i
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ ${COMP_WORDS[i]} == -- ]]; then
      COMPREPLY=($(compgen -c -f -- "$word"))
      return
    fi
  done
  case ${COMP_WORDS[1]} in
    run) COMPREPLY=($(compgen -W "--server --verbose --help --" -- "$word")) ;;
    server-info) COMPREPLY=($(compgen -W "--server --json --help" -- "$word")) ;;
    version) COMPREPLY=($(compgen -W "--json --help" -- "$word")) ;;
    completion) COMPREPLY=($(compgen -W "bash zsh fish" -- "$word")) ;;
    *) COMPREPLY=($(compgen -W "run server-info version completion --help" -- "$word")) ;;
  esac
}
complete -F _flyt flyt
)";

constexpr std::string_view kZsh = R"(#compdef flyt
_flyt() {
  local -a commands
  commands=(run server-info version completion)
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  case $words[2] in
    run) _arguments '--server[address of the GPU server]:url:' '--verbose[say what happens]' \
           '*::program:_normal' ;;
    server-info) _arguments '--server[address of the GPU server]:url:' '--json[as JSON]' ;;
    version) _arguments '--json[as JSON]' ;;
    completion) _values shell bash zsh fish ;;
  esac
}
compdef _flyt flyt
)";

constexpr std::string_view kFish = R"(set -l commands run server-info version completion
complete -c flyt -f -n "not __fish_seen_subcommand_from $commands" -a "$commands"
complete -c flyt -n "__fish_seen_subcommand_from run server-info" -l server -x -d "GPU server"
complete -c flyt -n "__fish_seen_subcommand_from run" -l verbose -d "Say what happens"
complete -c flyt -n "__fish_seen_subcommand_from server-info version" -l json -d "As JSON"
complete -c flyt -f -n "__fish_seen_subcommand_from completion" -a "bash zsh fish"
)";

}  // namespace

std::string_view completion_script(std::string_view shell) {
  if (shell == "bash") return kBash;
  if (shell == "zsh") return kZsh;
  if (shell == "fish") return kFish;
  return {};
}

}  // namespace flyt::cli
