#include "system/peers.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "core/strings.h"
#include "system/meeting.h"
#include "system/poll.h"

namespace hone {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kMagic = 0x454E4F48;  // "HONE"
constexpr std::uint32_t kData = 1;
constexpr std::uint32_t kFailed = 2;  // the sender has failed and reports it
constexpr std::uint32_t kLost = 3;    // the sender has lost rank `number`
constexpr std::size_t kMostText = 4096;
constexpr auto kReportLimit = std::chrono::milliseconds(1000);  // for the reason of a rank that has ended

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

// Returns what is left of a header and its payload after `done` bytes of both.
std::array<iovec, 2> unfinished(std::span<const std::byte> header, std::span<const std::byte> payload,
                                std::size_t done) {
  const auto rest = [](std::span<const std::byte> bytes, std::size_t begun) {
    bytes = bytes.subspan(std::min(begun, bytes.size()));
    return iovec{const_cast<std::byte*>(bytes.data()), bytes.size()};  // the same type for sending and receiving
  };
  return {rest(header, done), rest(payload, done - std::min(done, header.size()))};
}

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

// Begins each message of a connection. Data of the `number`-th exchange of two ranks, or the failure of a job with its
// text.
struct Peers::FrameHeader {
  std::uint32_t magic = 0;
  std::uint32_t kind = 0;
  std::uint64_t number = 0;  // of the exchange; of kLost: the rank that is lost
  std::uint64_t bytes = 0;
};

// A message is a header and its payload, in both directions.
struct Peers::Flow {
  Transfer transfer;
  FrameHeader out_header;
  FrameHeader in_header;
  std::size_t sent = 0;      // bytes, with the header
  std::size_t received = 0;  // bytes, with the header

  [[nodiscard]] bool has_sent() const { return sent == sizeof(FrameHeader) + transfer.out.size(); }
  [[nodiscard]] bool has_received() const { return received == sizeof(FrameHeader) + transfer.in.size(); }
};

Peers::Peers(const JobPlace& place, const PeerLimits& limits) : place_(place), limits_(limits) {
  Meeting meeting = meet(place, Clock::now() + limits.join);
  connections_ = std::move(meeting.connections);
  hosts_ = std::move(meeting.hosts);
  exchanged_.resize(connections_.size(), 0);
}

Peers::~Peers() = default;

std::string Peers::name_of(int rank) const {
  return text_of("rank ", rank, " (", hosts_[static_cast<std::size_t>(rank)], ")");
}

void Peers::send_some(Flow& flow) {
  while (!flow.has_sent()) {
    const auto header = std::as_bytes(std::span(&flow.out_header, 1));
    std::array<iovec, 2> parts = unfinished(header, flow.transfer.out, flow.sent);
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t count = ::sendmsg(connections_[static_cast<std::size_t>(flow.transfer.peer)].number(), &message,
                                    MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && would_block()) return;
    if (count < 0) throw_ended(flow.transfer.peer);
    flow.sent += static_cast<std::size_t>(count);
  }
}

void Peers::receive_header(Flow& flow) {
  const FrameHeader& header = flow.in_header;
  HONE_ASSERT(header.magic == kMagic, "a message of ", name_of(flow.transfer.peer), " begins with ", header.magic);
  if (header.kind != kData) {
    const std::size_t begun = std::min(flow.received - sizeof header, header.bytes);
    const std::string text(reinterpret_cast<const char*>(flow.transfer.in.data()), begun);
    throw_reported(flow.transfer.peer, header.kind, header.number, header.bytes, text);
  }
  HONE_ASSERT(header.number == flow.out_header.number && header.bytes == flow.transfer.in.size(),
              name_of(flow.transfer.peer), " sent ", header.bytes, " bytes in exchange ", header.number,
              "; this rank expects ", flow.transfer.in.size(), " in ", flow.out_header.number);
}

void Peers::receive_some(Flow& flow) {
  while (!flow.has_received()) {
    const auto header = std::as_bytes(std::span(&flow.in_header, 1));
    std::array<iovec, 2> parts = unfinished(header, flow.transfer.in, flow.received);
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t count =
        ::recvmsg(connections_[static_cast<std::size_t>(flow.transfer.peer)].number(), &message, MSG_DONTWAIT);
    if (count < 0 && would_block()) return;
    if (count <= 0) throw_ended(flow.transfer.peer);
    const bool had_header = flow.received >= header.size();
    flow.received += static_cast<std::size_t>(count);
    if (!had_header && flow.received >= header.size()) receive_header(flow);
  }
}

void Peers::exchange(std::span<const Transfer> transfers) {
  std::vector<Flow> flows;
  for (const Transfer& transfer : transfers) {
    HONE_ASSERT(transfer.peer != place_.rank && connections_[static_cast<std::size_t>(transfer.peer)].open(),
                "no connection to rank ", transfer.peer);
    const std::uint64_t number = ++exchanged_[static_cast<std::size_t>(transfer.peer)];
    flows.push_back(
        {.transfer = transfer, .out_header = {kMagic, kData, number, transfer.out.size()}, .in_header = {}});
  }
  std::vector<pollfd> waits;
  std::vector<Flow*> waiting;
  for (;;) {
    waits.clear();
    waiting.clear();
    for (Flow& flow : flows) {
      send_some(flow);
      receive_some(flow);
      const int events = (flow.has_sent() ? 0 : POLLOUT) | (flow.has_received() ? 0 : POLLIN);
      if (events == 0) continue;
      waits.push_back(
          {connections_[static_cast<std::size_t>(flow.transfer.peer)].number(), static_cast<short>(events), 0});
      waiting.push_back(&flow);
    }
    if (waiting.empty()) return;
    // Signals end a wait early; only a whole limit without any byte counts.
    const Clock::time_point deadline = Clock::now() + limits_.answer;
    while (poll_until(waits, deadline) == 0) {
      if (Clock::now() >= deadline) throw_silent(waiting.front()->transfer.peer);
    }
  }
}

void Peers::wait_for(int rank) const { (void)wait_readable(connections_[static_cast<std::size_t>(rank)].number()); }

std::vector<std::string> Peers::gather(std::string_view text) {
  const auto size = static_cast<std::size_t>(place_.size);
  const std::uint64_t mine = text.size();
  std::vector<std::uint64_t> lengths(size, mine);
  std::vector<Transfer> transfers;
  for (std::size_t r = 0; r < size; ++r) {
    if (static_cast<int>(r) == place_.rank) continue;
    transfers.push_back(
        {static_cast<int>(r), std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(&lengths[r], 1))});
  }
  exchange(transfers);
  std::vector<std::string> texts(size);
  for (std::size_t r = 0; r < size; ++r) texts[r].resize(lengths[r]);
  for (Transfer& transfer : transfers) {
    transfer.out = bytes_of(text);
    transfer.in = std::as_writable_bytes(std::span(texts[static_cast<std::size_t>(transfer.peer)]));
  }
  exchange(transfers);
  texts[static_cast<std::size_t>(place_.rank)] = text;
  return texts;
}

std::string Peers::broadcast(std::string_view text) { return gather(place_.rank == 0 ? text : "")[0]; }

std::string Peers::broadcast(std::string_view text, std::span<const int> group) {
  const int first = group.front();
  if (place_.rank != first) {
    std::uint64_t length = 0;
    const Transfer head{first, {}, std::as_writable_bytes(std::span(&length, 1))};
    exchange({&head, 1});
    std::string received(length, '\0');
    const Transfer whole{first, {}, std::as_writable_bytes(std::span(received))};
    exchange({&whole, 1});
    return received;
  }
  const std::uint64_t length = text.size();
  for (const std::span<const std::byte> bytes : {std::as_bytes(std::span(&length, 1)), bytes_of(text)}) {
    std::vector<Transfer> transfers;
    for (const int rank : group.subspan(1)) transfers.push_back({rank, bytes, {}});
    exchange(transfers);
  }
  return std::string(text);
}

void Peers::sum(std::span<double> values) {
  const std::string_view mine(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  const std::vector<std::string> all = gather(mine);
  std::vector<double> sums(values.size(), 0.0);
  std::vector<double> one(values.size());
  for (const std::string& each : all) {
    HONE_ASSERT(each.size() == values.size_bytes(), each.size(), " bytes for ", values.size(), " sums");
    if (!one.empty()) std::memcpy(one.data(), each.data(), each.size());
    for (std::size_t i = 0; i < one.size(); ++i) sums[i] += one[i];
  }
  std::ranges::copy(sums, values.begin());
}

void Peers::maximum(std::span<double> values) {
  const std::string_view mine(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  const std::vector<std::string> all = gather(mine);
  std::vector<double> one(values.size());
  for (const std::string& each : all) {
    HONE_ASSERT(each.size() == values.size_bytes(), each.size(), " bytes for ", values.size(), " maxima");
    if (!one.empty()) std::memcpy(one.data(), each.data(), each.size());
    for (std::size_t i = 0; i < one.size(); ++i) values[i] = std::max(values[i], one[i]);
  }
}

bool Peers::any(bool mine) {
  const char own = mine ? 1 : 0;
  std::vector<char> all(static_cast<std::size_t>(place_.size), own);
  std::vector<Transfer> transfers;
  for (int r = 0; r < place_.size; ++r) {
    if (r == place_.rank) continue;
    transfers.push_back({r, std::as_bytes(std::span(&own, 1)),
                         std::as_writable_bytes(std::span(&all[static_cast<std::size_t>(r)], 1))});
  }
  exchange(transfers);
  return std::ranges::find(all, 1) != all.end();
}

void Peers::send_failure(std::uint32_t kind, std::uint64_t about, std::string_view text) noexcept {
  text = text.substr(0, kMostText);
  const FrameHeader header{kMagic, kind, about, text.size()};
  std::array<char, sizeof(header) + kMostText> message{};
  std::memcpy(message.data(), &header, sizeof(header));
  std::memcpy(message.data() + sizeof(header), text.data(), text.size());
  for (std::size_t r = 0; r < connections_.size(); ++r) {
    if (!connections_[r].open() || (kind == kLost && r == about)) continue;
    // The other end reads a header next, unless this rank is inside of a message: then it sees the connection end.
    (void)::send(connections_[r].number(), message.data(), sizeof(header) + text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)::shutdown(connections_[r].number(), SHUT_WR);
  }
}

void Peers::fail(std::string_view reason) noexcept {
  send_failure(kFailed, static_cast<std::uint64_t>(place_.rank), reason);
  for (Descriptor& connection : connections_) connection = Descriptor();
}

void Peers::throw_reported(int from, std::uint32_t kind, std::uint64_t about, std::size_t bytes, std::string text) {
  const int connection = connections_[static_cast<std::size_t>(from)].number();
  std::size_t done = text.size();
  text.resize(std::max(std::min(bytes, kMostText), done), ' ');
  while (done < text.size() && wait_readable(connection, kReportLimit)) {
    const ssize_t count = ::recv(connection, text.data() + done, text.size() - done, MSG_DONTWAIT);
    if (count == 0 || (count < 0 && !would_block())) break;
    done += static_cast<std::size_t>(std::max<ssize_t>(count, 0));
  }
  text.resize(done);
  if (kind == kFailed) throw JobFailure(name_of(from), text, {}, true);
  throw JobFailure("", text, {}, !reports_about(static_cast<int>(about)));
}

void Peers::look_for_reports() {
  for (int r = 0; r < place_.size; ++r) {
    const Descriptor& connection = connections_[static_cast<std::size_t>(r)];
    FrameHeader header;
    if (!connection.open()) continue;
    const ssize_t count = ::recv(connection.number(), &header, sizeof(header), MSG_DONTWAIT | MSG_PEEK);
    if (count != sizeof(header) || header.magic != kMagic || header.kind == kData) continue;
    (void)::recv(connection.number(), &header, sizeof(header), MSG_DONTWAIT);
    throw_reported(r, header.kind, header.number, header.bytes, {});
  }
}

void Peers::throw_ended(int peer) {
  // A rank that ends because of another one's failure closes its connection too: the cause may be on its way.
  const Clock::time_point end = Clock::now() + kReportLimit;
  while (Clock::now() < end) {
    look_for_reports();
    ::poll(nullptr, 0, 20);
  }
  give_up_on(peer, "has ended", "its own log or the system's may say why: killed, out of memory, a crash");
}

void Peers::throw_silent(int peer) {
  look_for_reports();
  give_up_on(
      peer,
      text_of("has not answered for ", std::chrono::duration_cast<std::chrono::seconds>(limits_.answer).count(), " s"),
      "it hangs, is stopped or is slower than ddp_timeout allows");
}

void Peers::give_up_on(int peer, std::string_view what, std::string_view fix) {
  const std::string where = activity_.empty() ? std::string() : text_of(" (", activity_, ")");
  const std::string text = text_of(name_of(peer), ": ", what, where, "; the job ends");
  send_failure(kLost, static_cast<std::uint64_t>(peer), text_of(text, " (", fix, ")"));
  throw JobFailure("", text, fix, !reports_about(peer));
}

bool Peers::has_failed_below() {
  const Clock::time_point end = Clock::now() + kReportLimit;
  bool waits = true;
  while (waits && Clock::now() < end) {
    waits = false;
    for (int r = 0; r < place_.rank; ++r) {
      const Descriptor& connection = connections_[static_cast<std::size_t>(r)];
      FrameHeader header;
      if (!connection.open()) continue;
      const ssize_t count = ::recv(connection.number(), &header, sizeof(header), MSG_DONTWAIT | MSG_PEEK);
      const bool failed = count == sizeof(header) && header.magic == kMagic && header.kind == kFailed;
      if (failed && header.bytes > 0) return true;
      waits = waits || (!failed && count != 0);  // one that has ended, or fails without a reason, will not send one
    }
    if (waits) ::poll(nullptr, 0, 20);
  }
  return false;
}

bool Peers::has_lost_one() const {
  std::vector<pollfd> waits;
  for (const Descriptor& connection : connections_) {
    if (connection.open()) waits.push_back({connection.number(), POLLRDHUP, 0});
  }
  return ::poll(waits.data(), waits.size(), 0) > 0;
}

void Peers::throw_lost() {
  look_for_reports();
  for (int r = 0; r < place_.size; ++r) {
    pollfd wait{connections_[static_cast<std::size_t>(r)].number(), POLLRDHUP, 0};
    if (wait.fd >= 0 && ::poll(&wait, 1, 0) > 0) throw_ended(r);
  }
  throw_silent(place_.rank == 0 ? 1 : 0);
}

}  // namespace hone
