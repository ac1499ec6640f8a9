// Instructions that were fetched and have not begun: at most DEPTH. One that comes while none waits is at hand in the
// same cycle, and one that begins makes room in the same cycle.
module instruction_fifo #(
    parameter int WIDTH = 64,
    parameter int DEPTH = 4
) (
    input logic clk,
    input logic reset,
    input logic push,
    input logic [WIDTH-1:0] pushed,
    output logic ready,
    output logic valid,
    output logic [WIDTH-1:0] head,
    input logic pop
);
  localparam int PLACE = (DEPTH > 1) ? $clog2(DEPTH) : 1;
  localparam int COUNT = $clog2(DEPTH + 1);

  logic [WIDTH-1:0] waiting[0:DEPTH-1];
  logic [PLACE-1:0] first;
  logic [PLACE-1:0] free;
  logic [COUNT-1:0] count;

  wire is_empty = count == '0;
  wire stores = push && ready && !(pop && is_empty);
  wire leaves = pop && !is_empty;

  assign ready = (count < COUNT'(DEPTH)) || pop;
  assign valid = !is_empty || push;
  assign head = is_empty ? pushed : waiting[first];

  always_ff @(posedge clk) begin
    if (stores) waiting[free] <= pushed;
    if (reset) begin
      first <= '0;
      free <= '0;
      count <= '0;
    end else begin
      if (stores) free <= (free == PLACE'(DEPTH - 1)) ? '0 : free + 1'b1;
      if (leaves) first <= (first == PLACE'(DEPTH - 1)) ? '0 : first + 1'b1;
      if (stores && !leaves) count <= count + 1'b1;
      else if (leaves && !stores) count <= count - 1'b1;
    end
  end
endmodule
