// A memory of the unit: places of WIDTH bits, read in the cycle that asks, written at its end. Of two writes to one
// place in one cycle the later port's stays; streams are proven to have none.
module memory #(
    parameter int WIDTH = 8,
    parameter int DEPTH = 2,
    parameter int ADDRESS = 1,
    parameter int READS = 1,
    parameter int WRITES = 1
) (
    input logic clk,
    input logic [READS*ADDRESS-1:0] read_address,
    output logic [READS*WIDTH-1:0] read_data,
    input logic [WRITES-1:0] write,
    input logic [WRITES*ADDRESS-1:0] write_address,
    input logic [WRITES*WIDTH-1:0] write_data
);
  logic [WIDTH-1:0] places[0:DEPTH-1];

  for (genvar r = 0; r < READS; r++) begin : gen_read
    assign read_data[r*WIDTH+:WIDTH] = places[read_address[r*ADDRESS+:ADDRESS]];
  end

  always_ff @(posedge clk) begin
    for (int w = 0; w < WRITES; w++) begin
      if (write[w]) places[write_address[w*ADDRESS+:ADDRESS]] <= write_data[w*WIDTH+:WIDTH];
    end
  end
endmodule
