#include "tune/channel.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include <fmt/format.h>

#include "support/error.h"

namespace tessera::inline tune {

namespace {

int milliseconds_until(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const HostPort& address, bool to_listen, std::string& why) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (to_listen ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const int code = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  why = code != 0 ? gai_strerror(code) : "no such address";
  return {code == 0 ? found : nullptr, freeaddrinfo};
}

}  // namespace

Deadline deadline_in(double seconds) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

Channel::Channel(int socket) : socket_(socket) {
  fcntl(socket_, F_SETFL, fcntl(socket_, F_GETFL) | O_NONBLOCK);
  const int on = 1;
  setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

Channel::~Channel() { close(); }

Channel& Channel::operator=(Channel&& other) noexcept {
  if (this != &other) {
    close();
    socket_ = std::exchange(other.socket_, -1);
  }
  return *this;
}

void Channel::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

bool Channel::fail(std::string& why, const std::string& reason) {
  why = reason;
  close();
  return false;
}

bool Channel::wait_for(short events, Deadline deadline, std::string& why) {
  while (true) {
    const int left = milliseconds_until(deadline);
    pollfd entry{socket_, events, 0};
    const int ready = poll(&entry, 1, left);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return fail(why, std::strerror(errno));
    if (left == 0) return fail(why, "it does not answer");
  }
}

bool Channel::send(const std::string& text, Deadline deadline, std::string& why) {
  if (!open()) return fail(why, "it is not connected");
  const auto size = static_cast<uint32_t>(text.size());
  check(size == text.size(), "a message of 4 GiB");
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(size >> shift & 0xff);
  bytes += text;
  for (size_t at = 0; at < bytes.size();) {
    if (!wait_for(POLLOUT, deadline, why)) return false;
    const ssize_t count = ::send(socket_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    if (count > 0) at += static_cast<size_t>(count);
    else if (errno != EINTR && errno != EAGAIN) return fail(why, std::strerror(errno));
  }
  return true;
}

bool Channel::receive(std::string& text, size_t most_bytes, Deadline deadline, std::string& why) {
  if (!open()) return fail(why, "it is not connected");
  std::array<unsigned char, 4> head{};
  text.clear();
  size_t size = head.size();
  const auto read_into = [&](void* to, size_t wanted) {
    for (size_t at = 0; at < wanted;) {
      if (!wait_for(POLLIN, deadline, why)) return false;
      const ssize_t count = recv(socket_, static_cast<char*>(to) + at, wanted - at, 0);
      if (count > 0) at += static_cast<size_t>(count);
      else if (count == 0) return fail(why, "it closed the connection");
      else if (errno != EINTR && errno != EAGAIN) return fail(why, std::strerror(errno));
    }
    return true;
  };
  if (!read_into(head.data(), head.size())) return false;
  size = 0;
  for (const unsigned char byte : head) size = size << 8 | byte;
  if (size > most_bytes) {
    why = fmt::format("a message of {} bytes, of at most {}", size, most_bytes);
    return false;
  }
  text.resize(size);
  return read_into(text.data(), size);
}

HostPort parse_host_port(const std::string& text) {
  HostPort address;
  const size_t colon = text.rfind(':');
  int port = -1;
  if (colon != std::string::npos && colon > 0) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, port);
    if (error != std::errc() || stop != end) port = -1;
    address.host = text.substr(0, colon);
    if (address.host.front() == '[' && address.host.back() == ']')
      address.host = address.host.substr(1, address.host.size() - 2);
    else if (address.host.find(':') != std::string::npos) port = -1;
  }
  if (port < 0 || port > 65535 || address.host.empty())
    throw UserError({.id = "TSR-6407",
                     .message = fmt::format("'{}' is no address of a worker", text),
                     .node = {},
                     .legal = "HOST:PORT with a port up to 65535: 127.0.0.1:7000, [::1]:7000, name:7000",
                     .hint = {}});
  address.port = port;
  return address;
}

std::string to_string(const HostPort& address) {
  const bool is_v6 = address.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", is_v6 ? "[" : "", address.host, is_v6 ? "]" : "", address.port);
}

Channel connect_to(const HostPort& address, double seconds, std::string& why) {
  const Deadline deadline = deadline_in(seconds);
  const Addresses found = resolve(address, false, why);
  for (const addrinfo* entry = found.get(); entry; entry = entry->ai_next) {
    const int handle = socket(entry->ai_family, entry->ai_socktype | SOCK_CLOEXEC, entry->ai_protocol);
    if (handle < 0) continue;
    Channel channel(handle);
    int error = ::connect(handle, entry->ai_addr, entry->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      if (!channel.wait_for(POLLOUT, deadline, why)) continue;
      socklen_t size = sizeof(error);
      getsockopt(handle, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) return channel;
    why = std::strerror(error);
  }
  return {};
}

int listen_at(HostPort& address) {
  std::string why = "no such address";
  const Addresses found = resolve(address, true, why);
  for (const addrinfo* entry = found.get(); entry; entry = entry->ai_next) {
    const int handle = socket(entry->ai_family, entry->ai_socktype | SOCK_CLOEXEC, entry->ai_protocol);
    if (handle < 0) continue;
    const int on = 1;
    setsockopt(handle, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_storage bound{};
    socklen_t size = sizeof(bound);
    if (bind(handle, entry->ai_addr, entry->ai_addrlen) == 0 && listen(handle, 16) == 0 &&
        getsockname(handle, reinterpret_cast<sockaddr*>(&bound), &size) == 0) {
      address.port = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                                       : reinterpret_cast<sockaddr_in&>(bound).sin_port);
      return handle;
    }
    why = std::strerror(errno);
    ::close(handle);
  }
  throw UserError({.id = "TSR-6409",
                   .message = fmt::format("nothing can listen at {}: {}", to_string(address), why),
                   .node = {},
                   .legal = "an address of this machine with a port that is free",
                   .hint = "port 0 takes any that is free"});
}

}  // namespace tessera::inline tune
