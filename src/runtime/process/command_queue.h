// What queues of devices have that do their commands on a thread of their own: one thread gives commands, that thread
// does them in order, and whoever wants to know waits for marks between them.
//
// A queue is a struct with this as its base and with what it does with commands: it begins with zeros but for the
// mutex. No exceptions, no RTTI, no C++ library.
#pragma once

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <new>

#include "abi/device_abi.h"

namespace tessera {

template <typename Command>
struct CommandQueue {
  static constexpr uint32_t kRoom = 256;  // commands that stand in a queue at once

  pthread_t thread;
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
  uint64_t given = 0, done = 0;  // commands since the queue was opened; what is done has no other before it that is not
  int32_t failed = 0;
  uint64_t* marks = nullptr;  // by token: how many commands were given before
  tsr_operation_trace_fn trace = nullptr;
  void* trace_user = nullptr;
  Command ring[kRoom];

  // Waits for room; returns with the mutex held, until end_command().
  Command& next_command() {
    pthread_mutex_lock(&mutex);
    while (given - done == kRoom) pthread_cond_wait(&changed, &mutex);
    return ring[given % kRoom];
  }
  void end_command() {
    ++given;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
  }
  // Returns with the mutex held.
  void wait_until(uint64_t wanted) {
    pthread_mutex_lock(&mutex);
    while (done < wanted) pthread_cond_wait(&changed, &mutex);
  }
  void mark(uint32_t token) { marks[token] = given; }  // the one thread that gives is this one
  void set_trace(tsr_operation_trace_fn function, void* user) {
    wait_until(given);  // what is under way has the old one
    trace = function;
    trace_user = user;
    pthread_mutex_unlock(&mutex);
  }
};

// A queue without its thread; null: there is no memory for it.
template <typename Queue>
Queue* new_queue(uint32_t num_tokens) {
  void* memory = malloc(sizeof(Queue));
  auto* queue = memory ? new (memory) Queue() : nullptr;
  if (!queue) return nullptr;
  queue->marks = static_cast<uint64_t*>(calloc(num_tokens + size_t{1}, sizeof(uint64_t)));
  if (queue->marks) return queue;
  free(queue);
  return nullptr;
}

template <typename Queue>
void free_queue(Queue* queue) {
  free(queue->marks);
  free(queue);
}

// `work` gets the queue, and ends behind the last command.
template <typename Queue>
int32_t start_thread(Queue* queue, void* (*work)(void*), char* message) {
  const int reason = pthread_create(&queue->thread, nullptr, work, queue);
  if (reason != 0) snprintf(message, TSR_DEVICE_MESSAGE, "no thread for a queue: %s", strerror(reason));
  return reason == 0 ? 0 : -1;
}

}  // namespace tessera
