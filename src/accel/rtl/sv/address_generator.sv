// Where an operand lies in the current step: each loop keeps where its iteration begins, so that strides are added and
// nothing is multiplied. Iterations of a loop that do not move the operand leave it where it is.
module address_generator #(
    parameter int LOOPS = 1,
    parameter int WIDTH = 8
) (
    input logic clk,
    input logic active,
    input logic step,
    input logic [LOOPS-1:0] advance,
    input logic [LOOPS-1:0] moves,
    input logic [WIDTH-1:0] base,
    input logic [LOOPS*WIDTH-1:0] strides,
    output logic [WIDTH-1:0] address
);
  logic [LOOPS*WIDTH-1:0] begins;
  logic [LOOPS*WIDTH-1:0] now;
  logic [LOOPS*WIDTH-1:0] next;

  assign now = active ? begins : {LOOPS{base}};
  assign address = now[(LOOPS-1)*WIDTH+:WIDTH];

  always_comb begin
    next = now;
    for (int l = 0; l < LOOPS; l++) begin
      if (advance[l]) begin
        for (int inner = l; inner < LOOPS; inner++) begin
          next[inner*WIDTH+:WIDTH] = now[l*WIDTH+:WIDTH] + (moves[l] ? strides[l*WIDTH+:WIDTH] : '0);
        end
      end
    end
  end

  always_ff @(posedge clk) begin
    if (step || !active) begins <= next;
  end
endmodule
