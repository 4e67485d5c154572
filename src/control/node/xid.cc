#include "control/node/xid.h"

#include <algorithm>
#include <array>

namespace flyt::node {
namespace {

constexpr XidKind kProgram = XidKind::kProgram;
constexpr XidKind kMachine = XidKind::kMachine;
constexpr XidKind kFatal = XidKind::kFatal;

constexpr std::array kXids = {
    XidFacts{8, kProgram, "a channel has not got on in time"},
    XidFacts{13, kProgram, "a kernel has faulted: graphics engine exception"},
    XidFacts{31, kProgram, "access to memory that is not mapped: MMU fault"},
    XidFacts{32, kProgram, "a channel's commands were damaged"},
    XidFacts{43, kProgram, "a channel was stopped: its program has faulted"},
    XidFacts{45, kProgram,
             "a channel was cleaned up: its program has ended, or there was an error"},
    XidFacts{46, kMachine, "the GPU has stopped processing"},
    XidFacts{48, kMachine, "an ECC error of two bits"},
    XidFacts{61, kMachine, "an internal controller has met a breakpoint"},
    XidFacts{62, kFatal, "an internal controller has halted"},
    XidFacts{63, kMachine, "a row of memory will be remapped at the next reset"},
    XidFacts{64, kFatal, "a bad row of memory could not be noted down for remapping"},
    XidFacts{68, kProgram, "a video decoder has faulted"},
    XidFacts{69, kProgram, "a command for another engine: class error"},
    XidFacts{74, kMachine, "an NVLink has had an error"},
    XidFacts{79, kFatal, "the GPU has fallen off the bus"},
    XidFacts{92, kMachine, "many ECC errors of one bit"},
    XidFacts{94, kMachine, "a memory error, contained: it has cost one program"},
    XidFacts{95, kFatal, "a memory error that was not contained"},
    XidFacts{109, kProgram, "a context could not be switched in time"},
    XidFacts{110, kFatal, "a security fault"},
    XidFacts{119, kFatal, "the system processor (GSP) does not answer"},
    XidFacts{120, kFatal, "the system processor (GSP) has failed"},
    XidFacts{121, kMachine, "the link to the processor (C2C) has corrected errors"},
    XidFacts{136, kMachine, "an NVLink could not be trained"},
    XidFacts{137, kProgram, "access by NVLink to memory that is not mapped"},
    XidFacts{140, kFatal, "an ECC error from which the driver could not recover"},
    XidFacts{143, kFatal, "the GPU could not be initialised"},
    XidFacts{144, kMachine, "an NVLink has had an error: SAW"},
    XidFacts{145, kMachine, "an NVLink has had an error: RLW"},
    XidFacts{146, kMachine, "an NVLink has had an error: TLW"},
    XidFacts{147, kMachine, "an NVLink has had an error: TREX"},
    XidFacts{148, kMachine, "an NVLink has had an error: NVLPW"},
    XidFacts{149, kMachine, "an NVLink has had an error: NETIR"},
    XidFacts{150, kMachine, "an NVLink has had an error: MSE"},
    XidFacts{154, kMachine, "what the GPU needs to recover has changed"},
    XidFacts{155, kMachine, "an NVLink has gone down"},
    XidFacts{156, kMachine, "a part of the GPU will be retired at the next reset"},
    XidFacts{157, kMachine, "a bad part of the GPU could not be retired"},
    XidFacts{158, kMachine, "a fatal timeout of the GPU"},
    XidFacts{167, kMachine, "a fatal timeout of PCI Express"},
    XidFacts{171, kMachine, "an uncorrectable ECC error, in DRAM"},
    XidFacts{172, kMachine, "an uncorrectable ECC error, in SRAM"},
};

constexpr bool before(const XidFacts& facts, std::uint32_t number) { return facts.number < number; }

const XidFacts* find(std::uint32_t number) {
  const auto* const found = std::lower_bound(kXids.begin(), kXids.end(), number, before);
  return found != kXids.end() && found->number == number ? found : nullptr;
}

}  // namespace

std::span<const XidFacts> known_xids() { return kXids; }

std::uint32_t xid_number(std::uint64_t told) {
  return told <= kXidMax ? static_cast<std::uint32_t>(told) : kOtherXids;
}

XidKind kind_of_xid(std::uint32_t number) {
  const XidFacts* const facts = find(number);
  return facts != nullptr ? facts->kind : kProgram;
}

std::string xid_text(std::uint32_t number) {
  if (number == kOtherXids) return "an Xid beyond " + std::to_string(kXidMax);
  const std::string text = "Xid " + std::to_string(number);
  const XidFacts* const facts = find(number);
  return facts != nullptr ? text + " (" + std::string(facts->meaning) + ")" : text;
}

std::string xids_text(const XidCounts& counts) {
  std::string text;
  for (const auto& [number, times] : counts) {
    if (!text.empty()) text += "; ";
    text += xid_text(number);
    if (times != 1) text += ", " + std::to_string(times) + " times";
  }
  return text;
}

}  // namespace flyt::node
