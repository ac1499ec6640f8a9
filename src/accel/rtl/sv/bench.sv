// Runs a stream on the accelerator, with DRAM around it. Files are in the folder +folder=PATH: stream.hex, an
// instruction each line; dram.hex, the bytes of all segments; segments.hex, where each segment begins. +instructions=N,
// +dram=BYTES, +limit=CYCLES. At the end, dram.out and NAME.out have the contents of DRAM and of each memory, steps.out when each
// instruction began (b QUEUE CYCLE) and ended (e QUEUE CYCLE), and a line says how many cycles it took.
module bench (
    input logic clk
);
`include "bench_parameters.svh"

  localparam int DRAM_BYTES = 1 << 24;
  localparam int MOST_INSTRUCTIONS = 1 << 16;

  logic [7:0] dram[0:DRAM_BYTES-1];
  logic [31:0] segments[0:31];
  logic [WIDTH-1:0] stream[0:MOST_INSTRUCTIONS-1];

  logic reset = 1'b1;
  logic [31:0] instructions;
  logic [31:0] instruction_address;
  logic [QUEUES-1:0] started;
  logic [QUEUES-1:0] finished;
  logic idle;
  logic [PORTS-1:0] request;
  logic [PORTS*SEGMENT-1:0] request_segment;
  logic [PORTS*ADDRESS-1:0] request_base;
  logic [PORTS*LOOPS*EXTENT-1:0] request_extents;
  logic [PORTS*LOOPS*EXTENT-1:0] request_begins;
  logic [PORTS*LOOPS*EXTENT-1:0] request_ends;
  logic [PORTS*LOOPS*(ADDRESS+1)-1:0] request_strides;
  logic [PORTS*16-1:0] request_bytes;
  logic [PORTS-1:0] complete = '0;
  logic [PORTS*ADDRESS-1:0] dram_address;
  logic [PORTS-1:0] dram_read;
  logic [PORTS*DATA-1:0] dram_data;
  logic [PORTS-1:0] dram_write;
  logic [PORTS*DATA-1:0] dram_written;

  accelerator dut (
      .clk,
      .reset,
      .instructions,
      .instruction_address,
      .instruction(stream[instruction_address[15:0]]),
      .started,
      .finished,
      .idle,
      .request,
      .request_segment,
      .request_base,
      .request_extents,
      .request_begins,
      .request_ends,
      .request_strides,
      .request_bytes,
      .complete,
      .dram_address,
      .dram_read,
      .dram_data,
      .dram_write,
      .dram_written
  );

  string folder;
  int steps_file;
  longint limit;
  int dram_bytes;
`include "bench_memories.svh"
  initial begin
    if (!$value$plusargs("folder=%s", folder)) folder = ".";
    if (!$value$plusargs("instructions=%d", instructions)) instructions = 0;
    if (!$value$plusargs("limit=%d", limit)) limit = 1000000;
    if (!$value$plusargs("dram=%d", dram_bytes)) dram_bytes = 1;
    if (instructions != 0) $readmemh({folder, "/stream.hex"}, stream);
    $readmemh({folder, "/dram.hex"}, dram);
    $readmemh({folder, "/segments.hex"}, segments);
    steps_file = $fopen({folder, "/steps.out"}, "w");
  end

  // ---- data ----

  logic [31:0] segment_begin[0:PORTS-1];
  always_ff @(posedge clk) begin
    for (int p = 0; p < PORTS; p++) begin
      if (request[p]) segment_begin[p] <= segments[request_segment[p*SEGMENT+:SEGMENT]];
    end
  end
  function automatic logic [31:0] place_of(input int p);
    place_of = (request[p] ? segments[request_segment[p*SEGMENT+:SEGMENT]] : segment_begin[p]) + dram_address[p*ADDRESS+:32];
  endfunction

  always_comb begin
    dram_data = '0;
    for (int p = 0; p < PORTS; p++) begin
      if (dram_read[p]) begin
        for (int i = 0; i < DATA / 8; i++) dram_data[p*DATA+i*8+:8] = dram[(place_of(p)+i)&(DRAM_BYTES-1)];
      end
    end
  end

  logic [15:0] written_bytes[0:PORTS-1];
  always @(posedge clk) begin
    for (int p = 0; p < PORTS; p++) begin
      if (request[p]) written_bytes[p] = request_bytes[p*16+:16];
      if (dram_write[p]) begin
        for (int i = 0; i < {16'd0, written_bytes[p]}; i++) dram[(place_of(p)+i)&(DRAM_BYTES-1)] = dram_written[p*DATA+i*8+:8];
      end
    end
  end

  // ---- time ----

  longint cycle = 0;
  longint port_free = 0;
  longint done_at[0:PORTS-1];
  longint dram_total = 0;
  longint dram_busy = 0;

  // Bytes that DRAM moves for a request, in whole bursts of what lies behind one another.
  function automatic longint burst_bytes(input int p);
    longint total;
    longint begins;
    longint ends;
    longint address;
    longint each;
    longint steps;
    longint at[0:LOOPS-1];
    logic is_read;
    total = 0;
    begins = 0;
    ends = -1;
    each = {48'd0, request_bytes[p*16+:16]};
    steps = 1;
    for (int l = 0; l < LOOPS; l++) begin
      at[l] = 0;
      steps = steps * 64'(request_extents[(p*LOOPS+l)*EXTENT+:EXTENT]);
    end
    for (longint s = 0; s < steps; s++) begin
      address = 64'(request_base[p*ADDRESS+:ADDRESS]);
      is_read = 1'b1;
      for (int l = 0; l < LOOPS; l++) begin
        longint first;
        first = 64'(request_begins[(p*LOOPS+l)*EXTENT+:EXTENT]);
        address = address + (at[l] - first) * 64'($signed(request_strides[(p*LOOPS+l)*(ADDRESS+1)+:(ADDRESS+1)]));
        is_read = is_read && at[l] >= first && at[l] < 64'(request_ends[(p*LOOPS+l)*EXTENT+:EXTENT]);
      end
      if (is_read) begin
        if (address != ends) begin
          if (ends > begins) total = total + ((ends + BURST - 1) / BURST - begins / BURST) * BURST;
          begins = address;
        end
        ends = address + each;
      end
      for (int l = LOOPS - 1; l >= 0; l--) begin
        at[l] = at[l] + 1;
        if (at[l] < 64'(request_extents[(p*LOOPS+l)*EXTENT+:EXTENT])) break;
        at[l] = 0;
      end
    end
    if (ends > begins) total = total + ((ends + BURST - 1) / BURST - begins / BURST) * BURST;
    burst_bytes = total;
  endfunction

  initial for (int p = 0; p < PORTS; p++) done_at[p] = 0;

  // The one port serves requests one after the other; one waits out the latency while those before it pass.
  always @(negedge clk) begin
    for (int p = 0; p < PORTS; p++) begin
      if (!reset && request[p]) begin
        longint bytes;
        longint transfer;
        bytes = burst_bytes(p);
        transfer = (bytes + BYTES_PER_CYCLE - 1) / BYTES_PER_CYCLE;
        done_at[p] = 0;
        if (bytes > 0) begin
          if (cycle + LATENCY > port_free) port_free = cycle + LATENCY;
          port_free = port_free + transfer;
          done_at[p] = port_free;
          dram_total = dram_total + bytes;
          dram_busy = dram_busy + transfer;
        end
      end
      complete[p] = done_at[p] <= cycle + 1;
    end
  end

  always @(posedge clk) begin
    if (reset) begin
      reset <= 1'b0;
    end else begin
      for (int q = 0; q < QUEUES; q++) begin
        if (started[q]) $fwrite(steps_file, "b %0d %0d\n", q, cycle);
        if (finished[q]) $fwrite(steps_file, "e %0d %0d\n", q, cycle + 1);
      end
      if (idle || cycle > limit) begin
        if (idle) $display("cycles %0d dram_bytes %0d dram_busy %0d", cycle, dram_total, dram_busy);
        else $display("no end within %0d cycles", limit);
        $writememh({folder, "/dram.out"}, dram, 0, dram_bytes - 1);
        write_memories(folder);
        $fclose(steps_file);
        $finish;
      end
      cycle = cycle + 1;
    end
  end
endmodule
