// Tokens from one queue to another that were given and not taken yet.
module tokens #(
    parameter int WIDTH = 16
) (
    input logic clk,
    input logic reset,
    input logic give,
    input logic take,
    output logic available
);
  logic [WIDTH-1:0] count;

  assign available = count != '0;

  always_ff @(posedge clk) begin
    if (reset) count <= '0;
    else if (give && !take) count <= count + 1'b1;
    else if (take && !give) count <= count - 1'b1;
  end
endmodule
