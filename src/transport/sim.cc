#include "transport/sim.h"

#include <algorithm>
#include <array>

#include "base/random.h"

namespace flyt::transport {
namespace {

// One end: a plain connection whose reads and writes are disturbed. What it draws while reading
// and while writing comes from two generators, so that each is used by one thread at a time.
class SimConnection final : public Connection {
 public:
  SimConnection(std::unique_ptr<Connection> inner, const SimDirection& outgoing,
                const SimDirection& incoming, const Clock& clock, std::uint64_t seed)
      : inner_(std::move(inner)),
        outgoing_(outgoing),
        incoming_(incoming),
        clock_(clock),
        read_chance_(seed),
        write_chance_(seed ^ 0x5bd1e9955bd1e995ULL) {
    if (outgoing_.cut_after == 0) inner_->shut_down();
  }

  Result<std::size_t> read(std::span<const MutableBytes> into, Patience patience) override {
    if (incoming_.delay_max.count() > 0) {
      clock_.sleep_for(Duration(static_cast<std::int64_t>(
          read_chance_.below(static_cast<std::uint64_t>(incoming_.delay_max.count()) + 1))));
    }
    std::array<MutableBytes, kPiecesMax> pieces;
    const std::size_t limit = incoming_.fragment ? draw(read_chance_, total(into)) : total(into);
    return inner_->read(first_bytes(into, limit, pieces), patience);
  }

  Result<std::size_t> write(std::span<const Bytes> from, Patience patience) override {
    std::array<Bytes, kPiecesMax> pieces;
    std::uint64_t limit = total(from);
    if (outgoing_.fragment) limit = draw(write_chance_, limit);
    limit = std::min(limit, outgoing_.cut_after - written_);
    if (limit == 0) return inner_->write(from, patience);  // Cut already: meets the error.
    Result<std::size_t> sent = inner_->write(first_bytes(from, limit, pieces), patience);
    if (sent) written_ += *sent;
    if (written_ == outgoing_.cut_after) inner_->shut_down();
    return sent;
  }

  ReadySet wait(ReadySet wanted, Instant deadline, const Wakeup* wakeup) override {
    return inner_->wait(wanted, deadline, wakeup);
  }
  void shut_down() override { inner_->shut_down(); }
  void abandon() override { inner_->abandon(); }
  int fd() const override { return inner_->fd(); }
  std::string peer() const override { return "sim"; }

 private:
  template <class Piece>
  static std::uint64_t total(std::span<const Piece> pieces) {
    std::uint64_t sum = 0;
    for (const Piece& piece : pieces) sum += piece.size();
    return sum;
  }

  // Often a few bytes, so that every boundary is met; otherwise any number up to `most`.
  static std::uint64_t draw(Random& chance, std::uint64_t most) {
    const std::uint64_t bound = chance.one_in(3) ? std::min<std::uint64_t>(most, 32) : most;
    return 1 + chance.below(std::max<std::uint64_t>(bound, 1));
  }

  // The pieces that hold the first `limit` bytes of `pieces`, built in `out`.
  template <class Piece>
  static std::span<const Piece> first_bytes(std::span<const Piece> pieces, std::uint64_t limit,
                                            std::array<Piece, kPiecesMax>& out) {
    std::size_t used = 0;
    for (const Piece& piece : pieces) {
      if (limit == 0 || used == out.size()) break;
      out[used] = piece.first(std::min<std::uint64_t>(limit, piece.size()));
      limit -= out[used++].size();
    }
    return std::span<const Piece>(out).first(used);
  }

  const std::unique_ptr<Connection> inner_;
  const SimDirection outgoing_;
  const SimDirection incoming_;
  const Clock& clock_;
  Random read_chance_;
  Random write_chance_;
  std::uint64_t written_ = 0;
};

}  // namespace

Result<ConnectionPair> sim_pair(const SimOptions& options) {
  Result<ConnectionPair> plain = connection_pair();
  if (!plain) return plain;
  Random seeds(options.seed);
  auto first = std::make_unique<SimConnection>(std::move(plain->first), options.to_second,
                                               options.to_first, *options.clock, seeds.next());
  auto second = std::make_unique<SimConnection>(std::move(plain->second), options.to_first,
                                                options.to_second, *options.clock, seeds.next());
  return ConnectionPair(std::move(first), std::move(second));
}

Instant SimClock::now() const { return {now_ns_.load()}; }

void SimClock::sleep_for(Duration duration) const { now_ns_.fetch_add(duration.count()); }

}  // namespace flyt::transport
