// Where ranks that torchrun has started find each other: one of them keeps words that all write and read. Nobody
// computes with it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gloo/rendezvous/store.h>

namespace tessera {

// Connects to `host`:`port`, where rank 0 listens: on that host's address alone, so not beyond this machine where it is
// 127.0.0.1. Peers that do not know `token` are turned away. Throws std::runtime_error where that cannot be done within
// `seconds`.
std::shared_ptr<gloo::rendezvous::Store> tcp_store(const std::string& host, uint16_t port, bool listens,
                                                   const std::string& token, double seconds);

}  // namespace tessera
