#include "runtime/comm/tcp_store.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>

namespace tessera {
namespace {

constexpr uint32_t kMostBytes = 16 << 20;  // of a word
constexpr char kMagic[] = "tessera store 1";

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

  bool write_all(const void* data, size_t size) const {
    const auto* at = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t done = send(fd_, at, size, MSG_NOSIGNAL);
      if (done <= 0) return false;
      at += done;
      size -= static_cast<size_t>(done);
    }
    return true;
  }
  bool read_all(void* data, size_t size) const {
    auto* at = static_cast<char*>(data);
    while (size > 0) {
      const ssize_t done = recv(fd_, at, size, 0);
      if (done <= 0) return false;
      at += done;
      size -= static_cast<size_t>(done);
    }
    return true;
  }
  template <typename Bytes>
  bool write_word(const Bytes& bytes) const {
    const auto size = static_cast<uint32_t>(bytes.size());
    return write_all(&size, sizeof(size)) && write_all(bytes.data(), bytes.size());
  }
  template <typename Bytes>
  bool read_word(Bytes& bytes) const {
    uint32_t size = 0;
    if (!read_all(&size, sizeof(size)) || size > kMostBytes) return false;
    bytes.resize(size);
    return read_all(bytes.data(), size);
  }

 private:
  const int fd_;
};

// Its threads live as long as the process.
class Server {
 public:
  Server(int listener, std::string token) : listener_(listener), token_(std::move(token)) {
    std::thread([this] {
      while (true) {
        const int fd = accept(listener_.fd(), nullptr, nullptr);
        if (fd < 0 && errno != EINTR && errno != ECONNABORTED) return;
        if (fd >= 0) std::thread([this, fd] { serve(Socket(fd)); }).detach();
      }
    }).detach();
  }

 private:
  void serve(const Socket& peer) {
    std::string word;
    if (!peer.read_word(word) || word != kMagic || !peer.read_word(word) || word != token_) return;
    std::string key;
    std::vector<char> value;
    for (char what = 0; peer.read_all(&what, 1);) {
      if (!peer.read_word(key)) return;
      if (what == 'S') {
        if (!peer.read_word(value)) return;
        {
          const std::lock_guard lock(mutex_);
          words_[key] = value;
        }
        changed_.notify_all();
        if (!peer.write_all(&what, 1)) return;
      } else {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return words_.count(key) > 0; });
        value = words_.at(key);
        lock.unlock();
        if (!peer.write_word(value)) return;
      }
    }
  }

  const Socket listener_;
  const std::string token_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::vector<char>> words_;
};

class Client : public gloo::rendezvous::Store {
 public:
  Client(int fd, const std::string& token) : socket_(fd) {
    if (!socket_.write_word(std::string(kMagic)) || !socket_.write_word(token)) fail();
  }

  void set(const std::string& key, const std::vector<char>& data) override {
    const std::lock_guard lock(mutex_);
    char answer = 'S';
    if (!socket_.write_all(&answer, 1) || !socket_.write_word(key) || !socket_.write_word(data) ||
        !socket_.read_all(&answer, 1))
      fail();
  }
  std::vector<char> get(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    const char what = 'G';
    std::vector<char> data;
    if (!socket_.write_all(&what, 1) || !socket_.write_word(key) || !socket_.read_word(data)) fail();
    return data;
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) get(key);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override { wait(keys); }

 private:
  [[noreturn]] static void fail() { throw std::runtime_error("rank 0, where ranks find each other, has gone"); }

  const Socket socket_;
  std::mutex mutex_;
};

struct Addresses {
  addrinfo* first = nullptr;
  ~Addresses() {
    if (first) freeaddrinfo(first);
  }
};

}  // namespace

std::shared_ptr<gloo::rendezvous::Store> tcp_store(const std::string& host, uint16_t port, bool listens,
                                                   const std::string& token, double seconds) {
  Addresses addresses;
  addrinfo wanted = {};
  wanted.ai_socktype = SOCK_STREAM;
  const std::string at = host + ":" + std::to_string(port);
  if (const int reason = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &addresses.first);
      reason != 0)
    throw std::runtime_error("MASTER_ADDR " + host + ": " + gai_strerror(reason));
  const addrinfo& address = *addresses.first;
  if (listens) {
    const int fd = socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, address.ai_protocol);
    const int yes = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (fd < 0 || bind(fd, address.ai_addr, address.ai_addrlen) != 0 || listen(fd, SOMAXCONN) != 0) {
      const std::string reason = std::strerror(errno);
      if (fd >= 0) close(fd);
      throw std::runtime_error("cannot listen at " + at + ": " + reason);
    }
    new Server(fd, token);
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (true) {
    const int fd = socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, address.ai_protocol);
    if (fd >= 0 && connect(fd, address.ai_addr, address.ai_addrlen) == 0) {
      const int yes = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
      return std::make_shared<Client>(fd, token);
    }
    const std::string reason = std::strerror(errno);
    if (fd >= 0) close(fd);
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("no rank 0 at " + at + ": " + reason);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace tessera
