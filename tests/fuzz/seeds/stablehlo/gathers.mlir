module @jit_gathers attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<5x7xf32>, %arg1: tensor<5xi32>, %arg2: tensor<5xi32>) -> (tensor<5x7xf32> {jax.result_info = "result[0]"}, tensor<5x5xf32> {jax.result_info = "result[1]"}, tensor<5x5xf32> {jax.result_info = "result[2]"}, tensor<5xf32> {jax.result_info = "result[3]"}, tensor<5x5xf32> {jax.result_info = "result[4]"}, tensor<5x1xf32> {jax.result_info = "result[5]"}, tensor<5x2xf32> {jax.result_info = "result[6]"}, tensor<5xf32> {jax.result_info = "result[7]"}, tensor<2x3xf32> {jax.result_info = "result[8]"}, tensor<5x7xf32> {jax.result_info = "result[9]"}, tensor<7xf32> {jax.result_info = "result[10]"}, tensor<6xf32> {jax.result_info = "result[11]"}, tensor<5x7xf32> {jax.result_info = "result[12]"}) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %1 = stablehlo.compare LT, %arg1, %0, SIGNED : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi1>
    %c_0 = stablehlo.constant dense<5> : tensor<i32>
    %2 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %3 = stablehlo.add %arg1, %2 : tensor<5xi32>
    %4 = stablehlo.select %1, %3, %arg1 : tensor<5xi1>, tensor<5xi32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %6 = "stablehlo.gather"(%arg0, %5) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 7>}> : (tensor<5x7xf32>, tensor<5x1xi32>) -> tensor<5x7xf32>
    %c_1 = stablehlo.constant dense<4> : tensor<i32>
    %7 = call @remainder(%arg1, %c_1) : (tensor<5xi32>, tensor<i32>) -> tensor<5xi32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %8 = stablehlo.broadcast_in_dim %c_2, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %9 = stablehlo.compare LT, %7, %8, SIGNED : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi1>
    %c_3 = stablehlo.constant dense<7> : tensor<i32>
    %10 = stablehlo.broadcast_in_dim %c_3, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %11 = stablehlo.add %7, %10 : tensor<5xi32>
    %12 = stablehlo.select %9, %11, %7 : tensor<5xi1>, tensor<5xi32>
    %13 = stablehlo.broadcast_in_dim %12, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %14 = "stablehlo.gather"(%arg0, %13) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [1], start_index_map = [1], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 5, 1>}> : (tensor<5x7xf32>, tensor<5x1xi32>) -> tensor<5x5xf32>
    %15 = call @_take(%arg0, %arg1) : (tensor<5x7xf32>, tensor<5xi32>) -> tensor<5x5xf32>
    %c_4 = stablehlo.constant dense<0> : tensor<i32>
    %16 = stablehlo.broadcast_in_dim %c_4, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %17 = stablehlo.compare LT, %arg1, %16, SIGNED : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi1>
    %c_5 = stablehlo.constant dense<5> : tensor<i32>
    %18 = stablehlo.broadcast_in_dim %c_5, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %19 = stablehlo.add %arg1, %18 : tensor<5xi32>
    %20 = stablehlo.select %17, %19, %arg1 : tensor<5xi1>, tensor<5xi32>
    %c_6 = stablehlo.constant dense<0> : tensor<i32>
    %21 = stablehlo.broadcast_in_dim %c_6, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %22 = stablehlo.compare LT, %arg2, %21, SIGNED : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi1>
    %c_7 = stablehlo.constant dense<7> : tensor<i32>
    %23 = stablehlo.broadcast_in_dim %c_7, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %24 = stablehlo.add %arg2, %23 : tensor<5xi32>
    %25 = stablehlo.select %22, %24, %arg2 : tensor<5xi1>, tensor<5xi32>
    %26 = stablehlo.broadcast_in_dim %20, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %27 = stablehlo.broadcast_in_dim %25, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %28 = stablehlo.concatenate %26, %27, dim = 1 : (tensor<5x1xi32>, tensor<5x1xi32>) -> tensor<5x2xi32>
    %29 = "stablehlo.gather"(%arg0, %28) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 1>}> : (tensor<5x7xf32>, tensor<5x2xi32>) -> tensor<5xf32>
    %30 = stablehlo.broadcast_in_dim %arg1, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %31 = stablehlo.broadcast_in_dim %arg2, dims = [1] : (tensor<5xi32>) -> tensor<1x5xi32>
    %c_8 = stablehlo.constant dense<4> : tensor<i32>
    %32 = call @remainder_0(%31, %c_8) : (tensor<1x5xi32>, tensor<i32>) -> tensor<1x5xi32>
    %c_9 = stablehlo.constant dense<0> : tensor<i32>
    %33 = stablehlo.broadcast_in_dim %c_9, dims = [] : (tensor<i32>) -> tensor<5x1xi32>
    %34 = stablehlo.compare LT, %30, %33, SIGNED : (tensor<5x1xi32>, tensor<5x1xi32>) -> tensor<5x1xi1>
    %c_10 = stablehlo.constant dense<5> : tensor<i32>
    %35 = stablehlo.broadcast_in_dim %c_10, dims = [] : (tensor<i32>) -> tensor<5x1xi32>
    %36 = stablehlo.add %30, %35 : tensor<5x1xi32>
    %37 = stablehlo.select %34, %36, %30 : tensor<5x1xi1>, tensor<5x1xi32>
    %c_11 = stablehlo.constant dense<0> : tensor<i32>
    %38 = stablehlo.broadcast_in_dim %c_11, dims = [] : (tensor<i32>) -> tensor<1x5xi32>
    %39 = stablehlo.compare LT, %32, %38, SIGNED : (tensor<1x5xi32>, tensor<1x5xi32>) -> tensor<1x5xi1>
    %c_12 = stablehlo.constant dense<7> : tensor<i32>
    %40 = stablehlo.broadcast_in_dim %c_12, dims = [] : (tensor<i32>) -> tensor<1x5xi32>
    %41 = stablehlo.add %32, %40 : tensor<1x5xi32>
    %42 = stablehlo.select %39, %41, %32 : tensor<1x5xi1>, tensor<1x5xi32>
    %43 = stablehlo.broadcast_in_dim %37, dims = [0, 1] : (tensor<5x1xi32>) -> tensor<5x5xi32>
    %44 = stablehlo.broadcast_in_dim %42, dims = [0, 1] : (tensor<1x5xi32>) -> tensor<5x5xi32>
    %45 = stablehlo.broadcast_in_dim %43, dims = [0, 1] : (tensor<5x5xi32>) -> tensor<5x5x1xi32>
    %46 = stablehlo.broadcast_in_dim %44, dims = [0, 1] : (tensor<5x5xi32>) -> tensor<5x5x1xi32>
    %47 = stablehlo.concatenate %45, %46, dim = 2 : (tensor<5x5x1xi32>, tensor<5x5x1xi32>) -> tensor<5x5x2xi32>
    %48 = "stablehlo.gather"(%arg0, %47) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1, 1>}> : (tensor<5x7xf32>, tensor<5x5x2xi32>) -> tensor<5x5xf32>
    %c_13 = stablehlo.constant dense<4> : tensor<i32>
    %49 = call @remainder(%arg1, %c_13) : (tensor<5xi32>, tensor<i32>) -> tensor<5xi32>
    %50 = stablehlo.broadcast_in_dim %49, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %51 = call @take_along_axis(%arg0, %50) : (tensor<5x7xf32>, tensor<5x1xi32>) -> tensor<5x1xf32>
    %c_14 = stablehlo.constant dense<0> : tensor<i32>
    %52 = stablehlo.broadcast_in_dim %c_14, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %53 = stablehlo.compare LT, %arg1, %52, SIGNED : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi1>
    %c_15 = stablehlo.constant dense<7> : tensor<i32>
    %54 = stablehlo.broadcast_in_dim %c_15, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %55 = stablehlo.add %arg1, %54 : tensor<5xi32>
    %56 = stablehlo.select %53, %55, %arg1 : tensor<5xi1>, tensor<5xi32>
    %57 = stablehlo.broadcast_in_dim %56, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %58 = "stablehlo.gather"(%arg0, %57) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 1>, indices_are_sorted = true, slice_sizes = array<i64: 1, 2>}> : (tensor<5x7xf32>, tensor<5x1xi32>) -> tensor<5x2xf32>
    %c_16 = stablehlo.constant dense<0> : tensor<i32>
    %59 = stablehlo.broadcast_in_dim %c_16, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %60 = stablehlo.compare LT, %arg1, %59, SIGNED : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi1>
    %c_17 = stablehlo.constant dense<7> : tensor<i32>
    %61 = stablehlo.broadcast_in_dim %c_17, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %62 = stablehlo.add %arg1, %61 : tensor<5xi32>
    %63 = stablehlo.select %60, %62, %arg1 : tensor<5xi1>, tensor<5xi32>
    %64 = stablehlo.broadcast_in_dim %63, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %65 = "stablehlo.gather"(%arg0, %64) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 1>, indices_are_sorted = true, slice_sizes = array<i64: 1, 1>}> : (tensor<5x7xf32>, tensor<5x1xi32>) -> tensor<5x1xf32>
    %66 = stablehlo.reshape %65 : (tensor<5x1xf32>) -> tensor<5xf32>
    %67 = stablehlo.slice %arg1 [0:1] : (tensor<5xi32>) -> tensor<1xi32>
    %68 = stablehlo.reshape %67 : (tensor<1xi32>) -> tensor<i32>
    %69 = stablehlo.slice %arg2 [1:2] : (tensor<5xi32>) -> tensor<1xi32>
    %70 = stablehlo.reshape %69 : (tensor<1xi32>) -> tensor<i32>
    %c_18 = stablehlo.constant dense<0> : tensor<i32>
    %71 = stablehlo.compare LT, %68, %c_18, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %c_19 = stablehlo.constant dense<5> : tensor<i32>
    %72 = stablehlo.add %68, %c_19 : tensor<i32>
    %73 = stablehlo.select %71, %72, %68 : tensor<i1>, tensor<i32>
    %c_20 = stablehlo.constant dense<0> : tensor<i32>
    %74 = stablehlo.compare LT, %70, %c_20, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %c_21 = stablehlo.constant dense<7> : tensor<i32>
    %75 = stablehlo.add %70, %c_21 : tensor<i32>
    %76 = stablehlo.select %74, %75, %70 : tensor<i1>, tensor<i32>
    %77 = stablehlo.dynamic_slice %arg0, %73, %76, sizes = [2, 3] : (tensor<5x7xf32>, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %78 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x2xf32>
    %79 = stablehlo.slice %arg1 [1:2] : (tensor<5xi32>) -> tensor<1xi32>
    %80 = stablehlo.reshape %79 : (tensor<1xi32>) -> tensor<i32>
    %c_22 = stablehlo.constant dense<0> : tensor<i32>
    %81 = stablehlo.compare LT, %80, %c_22, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %c_23 = stablehlo.constant dense<5> : tensor<i32>
    %82 = stablehlo.add %80, %c_23 : tensor<i32>
    %83 = stablehlo.select %81, %82, %80 : tensor<i1>, tensor<i32>
    %c_24 = stablehlo.constant dense<40> : tensor<i32>
    %84 = stablehlo.dynamic_update_slice %arg0, %78, %83, %c_24 : (tensor<5x7xf32>, tensor<2x2xf32>, tensor<i32>, tensor<i32>) -> tensor<5x7xf32>
    %85 = stablehlo.slice %arg1 [0:1] : (tensor<5xi32>) -> tensor<1xi32>
    %86 = stablehlo.reshape %85 : (tensor<1xi32>) -> tensor<i32>
    %c_25 = stablehlo.constant dense<0> : tensor<i32>
    %87 = stablehlo.compare LT, %86, %c_25, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %c_26 = stablehlo.constant dense<5> : tensor<i32>
    %88 = stablehlo.add %86, %c_26 : tensor<i32>
    %89 = stablehlo.select %87, %88, %86 : tensor<i1>, tensor<i32>
    %c_27 = stablehlo.constant dense<0> : tensor<i32>
    %c_28 = stablehlo.constant dense<0> : tensor<i32>
    %90 = stablehlo.compare LT, %c_27, %c_28, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %c_29 = stablehlo.constant dense<0> : tensor<i32>
    %c_30 = stablehlo.constant dense<7> : tensor<i32>
    %91 = stablehlo.add %c_29, %c_30 : tensor<i32>
    %c_31 = stablehlo.constant dense<0> : tensor<i32>
    %92 = stablehlo.select %90, %91, %c_31 : tensor<i1>, tensor<i32>
    %93 = stablehlo.dynamic_slice %arg0, %89, %92, sizes = [1, 7] : (tensor<5x7xf32>, tensor<i32>, tensor<i32>) -> tensor<1x7xf32>
    %94 = stablehlo.reshape %93 : (tensor<1x7xf32>) -> tensor<7xf32>
    %95 = stablehlo.slice %arg1 [1:2] : (tensor<5xi32>) -> tensor<1xi32>
    %96 = stablehlo.reshape %95 : (tensor<1xi32>) -> tensor<i32>
    %c_32 = stablehlo.constant dense<0> : tensor<i32>
    %97 = stablehlo.compare LT, %96, %c_32, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %c_33 = stablehlo.constant dense<5> : tensor<i32>
    %98 = stablehlo.add %96, %c_33 : tensor<i32>
    %99 = stablehlo.select %97, %98, %96 : tensor<i1>, tensor<i32>
    %c_34 = stablehlo.constant dense<1> : tensor<i32>
    %c_35 = stablehlo.constant dense<0> : tensor<i32>
    %100 = stablehlo.compare LT, %c_34, %c_35, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %c_36 = stablehlo.constant dense<1> : tensor<i32>
    %c_37 = stablehlo.constant dense<7> : tensor<i32>
    %101 = stablehlo.add %c_36, %c_37 : tensor<i32>
    %c_38 = stablehlo.constant dense<1> : tensor<i32>
    %102 = stablehlo.select %100, %101, %c_38 : tensor<i1>, tensor<i32>
    %103 = stablehlo.dynamic_slice %arg0, %99, %102, sizes = [1, 6] : (tensor<5x7xf32>, tensor<i32>, tensor<i32>) -> tensor<1x6xf32>
    %104 = stablehlo.reshape %103 : (tensor<1x6xf32>) -> tensor<6xf32>
    %c_39 = stablehlo.constant dense<100> : tensor<i32>
    %105 = stablehlo.broadcast_in_dim %c_39, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %106 = stablehlo.add %arg1, %105 : tensor<5xi32>
    %107 = call @_take_1(%arg0, %106) : (tensor<5x7xf32>, tensor<5xi32>) -> tensor<5x7xf32>
    return %6, %14, %15, %29, %48, %51, %58, %66, %77, %84, %94, %104, %107 : tensor<5x7xf32>, tensor<5x5xf32>, tensor<5x5xf32>, tensor<5xf32>, tensor<5x5xf32>, tensor<5x1xf32>, tensor<5x2xf32>, tensor<5xf32>, tensor<2x3xf32>, tensor<5x7xf32>, tensor<7xf32>, tensor<6xf32>, tensor<5x7xf32>
  }
  func.func private @remainder(%arg0: tensor<5xi32>, %arg1: tensor<i32>) -> tensor<5xi32> {
    %0 = stablehlo.convert %arg1 : tensor<i32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.compare EQ, %0, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %c_0 = stablehlo.constant dense<1> : tensor<i32>
    %2 = call @_where(%1, %c_0, %0) : (tensor<i1>, tensor<i32>, tensor<i32>) -> tensor<i32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %4 = stablehlo.remainder %arg0, %3 : tensor<5xi32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %5 = stablehlo.broadcast_in_dim %c_1, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %6 = stablehlo.compare NE, %4, %5, SIGNED : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi1>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %7 = stablehlo.broadcast_in_dim %c_2, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %8 = stablehlo.compare LT, %4, %7, SIGNED : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi1>
    %c_3 = stablehlo.constant dense<0> : tensor<i32>
    %9 = stablehlo.compare LT, %2, %c_3, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %10 = stablehlo.broadcast_in_dim %9, dims = [] : (tensor<i1>) -> tensor<5xi1>
    %11 = stablehlo.compare NE, %8, %10, UNSIGNED : (tensor<5xi1>, tensor<5xi1>) -> tensor<5xi1>
    %12 = stablehlo.and %11, %6 : tensor<5xi1>
    %13 = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %14 = stablehlo.add %4, %13 : tensor<5xi32>
    %15 = stablehlo.select %12, %14, %4 : tensor<5xi1>, tensor<5xi32>
    return %15 : tensor<5xi32>
  }
  func.func private @_where(%arg0: tensor<i1>, %arg1: tensor<i32>, %arg2: tensor<i32>) -> tensor<i32> {
    %0 = stablehlo.select %arg0, %arg1, %arg2 : tensor<i1>, tensor<i32>
    return %0 : tensor<i32>
  }
  func.func private @_take(%arg0: tensor<5x7xf32>, %arg1: tensor<5xi32>) -> tensor<5x5xf32> {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %1 = "stablehlo.gather"(%arg0, %0) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [1], start_index_map = [1], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 5, 1>}> : (tensor<5x7xf32>, tensor<5x1xi32>) -> tensor<5x5xf32>
    return %1 : tensor<5x5xf32>
  }
  func.func private @remainder_0(%arg0: tensor<1x5xi32>, %arg1: tensor<i32>) -> tensor<1x5xi32> {
    %0 = stablehlo.convert %arg1 : tensor<i32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.compare EQ, %0, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %c_0 = stablehlo.constant dense<1> : tensor<i32>
    %2 = call @_where(%1, %c_0, %0) : (tensor<i1>, tensor<i32>, tensor<i32>) -> tensor<i32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<i32>) -> tensor<1x5xi32>
    %4 = stablehlo.remainder %arg0, %3 : tensor<1x5xi32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %5 = stablehlo.broadcast_in_dim %c_1, dims = [] : (tensor<i32>) -> tensor<1x5xi32>
    %6 = stablehlo.compare NE, %4, %5, SIGNED : (tensor<1x5xi32>, tensor<1x5xi32>) -> tensor<1x5xi1>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %7 = stablehlo.broadcast_in_dim %c_2, dims = [] : (tensor<i32>) -> tensor<1x5xi32>
    %8 = stablehlo.compare LT, %4, %7, SIGNED : (tensor<1x5xi32>, tensor<1x5xi32>) -> tensor<1x5xi1>
    %c_3 = stablehlo.constant dense<0> : tensor<i32>
    %9 = stablehlo.compare LT, %2, %c_3, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %10 = stablehlo.broadcast_in_dim %9, dims = [] : (tensor<i1>) -> tensor<1x5xi1>
    %11 = stablehlo.compare NE, %8, %10, UNSIGNED : (tensor<1x5xi1>, tensor<1x5xi1>) -> tensor<1x5xi1>
    %12 = stablehlo.and %11, %6 : tensor<1x5xi1>
    %13 = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<i32>) -> tensor<1x5xi32>
    %14 = stablehlo.add %4, %13 : tensor<1x5xi32>
    %15 = stablehlo.select %12, %14, %4 : tensor<1x5xi1>, tensor<1x5xi32>
    return %15 : tensor<1x5xi32>
  }
  func.func private @take_along_axis(%arg0: tensor<5x7xf32>, %arg1: tensor<5x1xi32>) -> tensor<5x1xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<5x1xi32>
    %1 = stablehlo.compare LT, %arg1, %0, SIGNED : (tensor<5x1xi32>, tensor<5x1xi32>) -> tensor<5x1xi1>
    %c_0 = stablehlo.constant dense<7> : tensor<i32>
    %2 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<5x1xi32>
    %3 = stablehlo.add %arg1, %2 : tensor<5x1xi32>
    %4 = stablehlo.select %1, %3, %arg1 : tensor<5x1xi1>, tensor<5x1xi32>
    %5 = stablehlo.reshape %4 : (tensor<5x1xi32>) -> tensor<5x1x1xi32>
    %c_1 = stablehlo.constant dense<6> : tensor<1xi32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %6 = stablehlo.broadcast_in_dim %c_2, dims = [] : (tensor<i32>) -> tensor<5x1x1xi32>
    %7 = stablehlo.compare GE, %5, %6, SIGNED : (tensor<5x1x1xi32>, tensor<5x1x1xi32>) -> tensor<5x1x1xi1>
    %8 = stablehlo.broadcast_in_dim %c_1, dims = [2] : (tensor<1xi32>) -> tensor<1x1x1xi32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1, 2] : (tensor<1x1x1xi32>) -> tensor<5x1x1xi32>
    %10 = stablehlo.compare LE, %5, %9, SIGNED : (tensor<5x1x1xi32>, tensor<5x1x1xi32>) -> tensor<5x1x1xi1>
    %11 = stablehlo.and %7, %10 : tensor<5x1x1xi1>
    %c_3 = stablehlo.constant dense<true> : tensor<i1>
    %12 = stablehlo.reduce(%11 init: %c_3) applies stablehlo.and across dimensions = [2] : (tensor<5x1x1xi1>, tensor<i1>) -> tensor<5x1xi1>
    %13 = "stablehlo.gather"(%arg0, %5) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1, 1>}> : (tensor<5x7xf32>, tensor<5x1x1xi32>) -> tensor<5x1xf32>
    %cst = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<5x1xf32>
    %15 = stablehlo.select %12, %13, %14 : tensor<5x1xi1>, tensor<5x1xf32>
    return %15 : tensor<5x1xf32>
  }
  func.func private @_take_1(%arg0: tensor<5x7xf32>, %arg1: tensor<5xi32>) -> tensor<5x7xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %1 = stablehlo.compare LT, %arg1, %0, SIGNED : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi1>
    %c_0 = stablehlo.constant dense<5> : tensor<i32>
    %2 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %3 = stablehlo.add %arg1, %2 : tensor<5xi32>
    %4 = call @_where_2(%1, %3, %arg1) : (tensor<5xi1>, tensor<5xi32>, tensor<5xi32>) -> tensor<5xi32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %c_1 = stablehlo.constant dense<4> : tensor<1xi32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %6 = stablehlo.broadcast_in_dim %c_2, dims = [] : (tensor<i32>) -> tensor<5x1xi32>
    %7 = stablehlo.compare GE, %5, %6, SIGNED : (tensor<5x1xi32>, tensor<5x1xi32>) -> tensor<5x1xi1>
    %8 = stablehlo.broadcast_in_dim %c_1, dims = [1] : (tensor<1xi32>) -> tensor<1x1xi32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1] : (tensor<1x1xi32>) -> tensor<5x1xi32>
    %10 = stablehlo.compare LE, %5, %9, SIGNED : (tensor<5x1xi32>, tensor<5x1xi32>) -> tensor<5x1xi1>
    %11 = stablehlo.and %7, %10 : tensor<5x1xi1>
    %c_3 = stablehlo.constant dense<true> : tensor<i1>
    %12 = stablehlo.reduce(%11 init: %c_3) applies stablehlo.and across dimensions = [1] : (tensor<5x1xi1>, tensor<i1>) -> tensor<5xi1>
    %13 = "stablehlo.gather"(%arg0, %5) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 7>}> : (tensor<5x7xf32>, tensor<5x1xi32>) -> tensor<5x7xf32>
    %14 = stablehlo.broadcast_in_dim %12, dims = [0] : (tensor<5xi1>) -> tensor<5x7xi1>
    %cst = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %15 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<5x7xf32>
    %16 = stablehlo.select %14, %13, %15 : tensor<5x7xi1>, tensor<5x7xf32>
    return %16 : tensor<5x7xf32>
  }
  func.func private @_where_2(%arg0: tensor<5xi1>, %arg1: tensor<5xi32>, %arg2: tensor<5xi32>) -> tensor<5xi32> {
    %0 = stablehlo.select %arg0, %arg1, %arg2 : tensor<5xi1>, tensor<5xi32>
    return %0 : tensor<5xi32>
  }
}
