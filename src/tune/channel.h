// Messages over a socket between `tessera tune` and `tessera worker`: a length of 4 bytes, most significant first, and
// as many bytes of text. Everything has a limit: the size of a message, and the time that sending or receiving one may
// take.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>

namespace tessera::inline tune {

using Deadline = std::chrono::steady_clock::time_point;
Deadline deadline_in(double seconds);

// One connected socket, closed at the end. One thread sends and one receives at a time.
class Channel {
 public:
  Channel() = default;
  // Takes the descriptor.
  explicit Channel(int socket);
  ~Channel();
  Channel(Channel&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}
  Channel& operator=(Channel&& other) noexcept;

  bool open() const { return socket_ >= 0; }
  void close();
  // False with a reason, once and for all: the channel is closed then.
  bool send(const std::string& text, Deadline deadline, std::string& why);
  // A message above `most_bytes` is a reason, too. It is not read; the channel stays open for an answer to it alone.
  bool receive(std::string& text, size_t most_bytes, Deadline deadline, std::string& why);
  // Until the socket is ready for one of poll's `events`; false as for send().
  bool wait_for(short events, Deadline deadline, std::string& why);

 private:
  bool fail(std::string& why, const std::string& reason);
  int socket_ = -1;
};

struct HostPort {
  std::string host;
  int port = 0;
};
// "127.0.0.1:7000", "[::1]:7000", "name:7000"; UserError TSR-6407 for anything else.
HostPort parse_host_port(const std::string& text);
std::string to_string(const HostPort& address);

// A closed channel with a reason in `why` when nobody answers in time.
Channel connect_to(const HostPort& address, double seconds, std::string& why);
// A socket that listens, and the port that it got (port 0 asks for any). UserError TSR-6409 when that is not possible.
int listen_at(HostPort& address);

}  // namespace tessera::inline tune
