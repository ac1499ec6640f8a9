/* Runs the steps of ranks that tessera parallelize --trace has written, under SimGrid's SMPI: virtual time, the engine's
   own network and MPI. Prints the seconds of the slowest rank.    smpi_replay FOLDER DATA STAGE MODEL */
#include <mpi.h>
#include <smpi/smpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kAxes = 3, kMostMessages = 1 << 16 };

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size, extents[kAxes], place[kAxes];
  const char* names[kAxes] = {"data", "stage", "model"};
  MPI_Comm groups[kAxes];
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 2 + kAxes) return 2;
  int rest = rank;
  for (int a = kAxes; a-- > 0;) {
    extents[a] = atoi(argv[2 + a]);
    place[a] = rest % extents[a];
    rest /= extents[a];
  }
  for (int a = 0; a < kAxes; ++a) {
    int other = 0;  /* where it stands along all other axes */
    for (int b = 0; b < kAxes; ++b)
      if (b != a) other = other * extents[b] + place[b];
    MPI_Comm_split(MPI_COMM_WORLD, other, place[a], &groups[a]);
  }
  char path[4096], line[256];
  snprintf(path, sizeof(path), "%s/stage%d.steps", argv[1], place[1]);
  FILE* file = fopen(path, "r");
  if (!file) return 3;
  MPI_Request* sends = malloc(kMostMessages * sizeof(MPI_Request));
  int num_sends = 0;
  size_t room = 1 << 16;
  char *in = malloc(room), *out = malloc(room);
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  while (fgets(line, sizeof(line), file)) {
    char kind[32], axis[32];
    double seconds;
    long peer, message, bytes = 0;
    if (sscanf(line, "work %lf", &seconds) == 1) {
      smpi_execute(seconds);
      continue;
    }
    const int is_message = sscanf(line, "%31s %ld %ld %ld", kind, &peer, &message, &bytes) == 4;
    if (!is_message && sscanf(line, "%31s %31s %ld", kind, axis, &bytes) != 3) return 4;
    if ((size_t)bytes * 64 > room) {
      room = (size_t)bytes * 64;
      in = realloc(in, room);
      out = realloc(out, room);
    }
    if (is_message) {
      const int to = (place[0] * extents[1] + place[1] + (int)peer) * extents[2] + place[2];
      if (strcmp(kind, "send") == 0 && num_sends < kMostMessages)
        MPI_Isend(in, (int)bytes, MPI_BYTE, to, (int)message, MPI_COMM_WORLD, &sends[num_sends++]);
      else MPI_Recv(out, (int)bytes, MPI_BYTE, to, (int)message, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      continue;
    }
    int a = 0;
    while (a < kAxes && strcmp(names[a], axis) != 0) ++a;
    if (a == kAxes) return 5;
    const int n = extents[a], count = (int)(bytes / 4);
    if (strcmp(kind, "all_reduce") == 0) MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, groups[a]);
    else if (strcmp(kind, "all_gather") == 0) MPI_Allgather(in, count, MPI_INT, out, count, MPI_INT, groups[a]);
    else if (strcmp(kind, "reduce_scatter") == 0)
      MPI_Reduce_scatter_block(in, out, count / n, MPI_INT, MPI_SUM, groups[a]);
    else if (strcmp(kind, "all_to_all") == 0)
      MPI_Alltoall(in, count / n, MPI_INT, out, count / n, MPI_INT, groups[a]);
    else return 6;
  }
  MPI_Waitall(num_sends, sends, MPI_STATUSES_IGNORE);
  double took = MPI_Wtime() - begin, most;
  MPI_Reduce(&took, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("seconds %.9e\n", most);
  MPI_Finalize();
  return 0;
}
