// Fetches the stream in its order, an instruction each CYCLES, and holds one whose queue is full.
module instruction_fetch #(
    parameter int WIDTH = 64,
    parameter int CYCLES = 1,
    parameter int ADDRESS = 32
) (
    input logic clk,
    input logic reset,
    input logic [ADDRESS-1:0] count,
    output logic [ADDRESS-1:0] address,
    input logic [WIDTH-1:0] instruction,
    output logic valid,
    output logic [WIDTH-1:0] fetched,
    input logic ready,
    output logic done
);
  localparam int LEFT = $clog2(CYCLES + 1);

  logic [LEFT-1:0] left;

  assign done = address == count;
  assign valid = !done && left == '0;
  assign fetched = instruction;

  always_ff @(posedge clk) begin
    if (reset) begin
      address <= '0;
      left <= LEFT'(CYCLES);
    end else if (left != '0) begin
      left <= left - 1'b1;
    end else if (valid && ready) begin
      address <= address + 1'b1;
      left <= LEFT'(CYCLES - 1);
    end
  end
endmodule
