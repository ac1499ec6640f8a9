module @jit_scatters attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<5x7xf32>, %arg1: tensor<5xi32>, %arg2: tensor<5xi32>) -> (tensor<5x7xf32> {jax.result_info = "result[0]"}, tensor<5x7xf32> {jax.result_info = "result[1]"}, tensor<5x7xf32> {jax.result_info = "result[2]"}, tensor<5x7xf32> {jax.result_info = "result[3]"}, tensor<5x7xf32> {jax.result_info = "result[4]"}, tensor<5x7xf32> {jax.result_info = "result[5]"}, tensor<5x7xf32> {jax.result_info = "result[6]"}, tensor<5x7xf32> {jax.result_info = "result[7]"}, tensor<6x7xf32> {jax.result_info = "result[8]"}, tensor<5x7xf32> {jax.result_info = "result[9]"}, tensor<9xi32> {jax.result_info = "result[10]"}, tensor<8xi1> {jax.result_info = "result[11]"}, tensor<5x7xf32> {jax.result_info = "result[12]"}) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %1 = stablehlo.compare LT, %arg1, %0, SIGNED : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi1>
    %c_0 = stablehlo.constant dense<5> : tensor<i32>
    %2 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %3 = stablehlo.add %arg1, %2 : tensor<5xi32>
    %4 = stablehlo.select %1, %3, %arg1 : tensor<5xi1>, tensor<5xi32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %cst = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %6 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<5x7xf32>
    %7 = "stablehlo.scatter"(%arg0, %5, %6) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      stablehlo.return %arg4 : tensor<f32>
    }) : (tensor<5x7xf32>, tensor<5x1xi32>, tensor<5x7xf32>) -> tensor<5x7xf32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %8 = stablehlo.broadcast_in_dim %c_1, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %9 = stablehlo.compare LT, %arg1, %8, SIGNED : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi1>
    %c_2 = stablehlo.constant dense<5> : tensor<i32>
    %10 = stablehlo.broadcast_in_dim %c_2, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %11 = stablehlo.add %arg1, %10 : tensor<5xi32>
    %12 = stablehlo.select %9, %11, %arg1 : tensor<5xi1>, tensor<5xi32>
    %13 = stablehlo.broadcast_in_dim %12, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %cst_3 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<5x7xf32>
    %15 = "stablehlo.scatter"(%arg0, %13, %14) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      %115 = stablehlo.add %arg3, %arg4 : tensor<f32>
      stablehlo.return %115 : tensor<f32>
    }) : (tensor<5x7xf32>, tensor<5x1xi32>, tensor<5x7xf32>) -> tensor<5x7xf32>
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
    %cst_8 = stablehlo.constant dense<3.000000e+00> : tensor<f32>
    %29 = stablehlo.broadcast_in_dim %cst_8, dims = [] : (tensor<f32>) -> tensor<5xf32>
    %30 = "stablehlo.scatter"(%arg0, %28, %29) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 1>, unique_indices = false}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      %115 = stablehlo.add %arg3, %arg4 : tensor<f32>
      stablehlo.return %115 : tensor<f32>
    }) : (tensor<5x7xf32>, tensor<5x2xi32>, tensor<5xf32>) -> tensor<5x7xf32>
    %c_9 = stablehlo.constant dense<4> : tensor<i32>
    %31 = call @remainder(%arg1, %c_9) : (tensor<5xi32>, tensor<i32>) -> tensor<5xi32>
    %c_10 = stablehlo.constant dense<0> : tensor<i32>
    %32 = stablehlo.broadcast_in_dim %c_10, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %33 = stablehlo.compare LT, %31, %32, SIGNED : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi1>
    %c_11 = stablehlo.constant dense<7> : tensor<i32>
    %34 = stablehlo.broadcast_in_dim %c_11, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %35 = stablehlo.add %31, %34 : tensor<5xi32>
    %36 = stablehlo.select %33, %35, %31 : tensor<5xi1>, tensor<5xi32>
    %37 = stablehlo.broadcast_in_dim %36, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %cst_12 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %38 = stablehlo.broadcast_in_dim %cst_12, dims = [] : (tensor<f32>) -> tensor<5x5xf32>
    %39 = "stablehlo.scatter"(%arg0, %37, %38) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0], inserted_window_dims = [1], scatter_dims_to_operand_dims = [1], index_vector_dim = 1>, unique_indices = false}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      %115 = stablehlo.multiply %arg3, %arg4 : tensor<f32>
      stablehlo.return %115 : tensor<f32>
    }) : (tensor<5x7xf32>, tensor<5x1xi32>, tensor<5x5xf32>) -> tensor<5x7xf32>
    %c_13 = stablehlo.constant dense<0> : tensor<i32>
    %40 = stablehlo.broadcast_in_dim %c_13, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %41 = stablehlo.compare LT, %arg1, %40, SIGNED : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi1>
    %c_14 = stablehlo.constant dense<5> : tensor<i32>
    %42 = stablehlo.broadcast_in_dim %c_14, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %43 = stablehlo.add %arg1, %42 : tensor<5xi32>
    %44 = stablehlo.select %41, %43, %arg1 : tensor<5xi1>, tensor<5xi32>
    %45 = stablehlo.broadcast_in_dim %44, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %cst_15 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %46 = stablehlo.broadcast_in_dim %cst_15, dims = [] : (tensor<f32>) -> tensor<5x7xf32>
    %47 = "stablehlo.scatter"(%arg0, %45, %46) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      %115 = stablehlo.maximum %arg3, %arg4 : tensor<f32>
      stablehlo.return %115 : tensor<f32>
    }) : (tensor<5x7xf32>, tensor<5x1xi32>, tensor<5x7xf32>) -> tensor<5x7xf32>
    %c_16 = stablehlo.constant dense<0> : tensor<i32>
    %48 = stablehlo.broadcast_in_dim %c_16, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %49 = stablehlo.compare LT, %arg1, %48, SIGNED : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi1>
    %c_17 = stablehlo.constant dense<5> : tensor<i32>
    %50 = stablehlo.broadcast_in_dim %c_17, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %51 = stablehlo.add %arg1, %50 : tensor<5xi32>
    %52 = stablehlo.select %49, %51, %arg1 : tensor<5xi1>, tensor<5xi32>
    %53 = stablehlo.broadcast_in_dim %52, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %cst_18 = stablehlo.constant dense<-5.000000e-01> : tensor<f32>
    %54 = stablehlo.broadcast_in_dim %cst_18, dims = [] : (tensor<f32>) -> tensor<5x7xf32>
    %55 = "stablehlo.scatter"(%arg0, %53, %54) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      %115 = stablehlo.minimum %arg3, %arg4 : tensor<f32>
      stablehlo.return %115 : tensor<f32>
    }) : (tensor<5x7xf32>, tensor<5x1xi32>, tensor<5x7xf32>) -> tensor<5x7xf32>
    %c_19 = stablehlo.constant dense<100> : tensor<i32>
    %56 = stablehlo.broadcast_in_dim %c_19, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %57 = stablehlo.add %arg1, %56 : tensor<5xi32>
    %c_20 = stablehlo.constant dense<0> : tensor<i32>
    %58 = stablehlo.broadcast_in_dim %c_20, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %59 = stablehlo.compare LT, %57, %58, SIGNED : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi1>
    %c_21 = stablehlo.constant dense<5> : tensor<i32>
    %60 = stablehlo.broadcast_in_dim %c_21, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %61 = stablehlo.add %57, %60 : tensor<5xi32>
    %62 = stablehlo.select %59, %61, %57 : tensor<5xi1>, tensor<5xi32>
    %63 = stablehlo.broadcast_in_dim %62, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %cst_22 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %64 = stablehlo.broadcast_in_dim %cst_22, dims = [] : (tensor<f32>) -> tensor<5x7xf32>
    %65 = "stablehlo.scatter"(%arg0, %63, %64) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      %115 = stablehlo.add %arg3, %arg4 : tensor<f32>
      stablehlo.return %115 : tensor<f32>
    }) : (tensor<5x7xf32>, tensor<5x1xi32>, tensor<5x7xf32>) -> tensor<5x7xf32>
    %c_23 = stablehlo.constant dense<1> : tensor<i32>
    %66 = stablehlo.broadcast_in_dim %c_23, dims = [] : (tensor<i32>) -> tensor<1xi32>
    %c_24 = stablehlo.constant dense<2> : tensor<i32>
    %67 = stablehlo.broadcast_in_dim %c_24, dims = [] : (tensor<i32>) -> tensor<1xi32>
    %68 = stablehlo.concatenate %66, %67, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %cst_25 = stablehlo.constant dense<7.000000e+00> : tensor<f32>
    %69 = stablehlo.broadcast_in_dim %cst_25, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %70 = "stablehlo.scatter"(%arg0, %68, %69) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0], inserted_window_dims = [1], scatter_dims_to_operand_dims = [0, 1]>, unique_indices = true}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      stablehlo.return %arg4 : tensor<f32>
    }) : (tensor<5x7xf32>, tensor<2xi32>, tensor<2xf32>) -> tensor<5x7xf32>
    %cst_26 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %71 = stablehlo.broadcast_in_dim %cst_26, dims = [] : (tensor<f32>) -> tensor<6x7xf32>
    %72 = stablehlo.broadcast_in_dim %arg1, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %73 = "stablehlo.scatter"(%71, %72, %arg0) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      %115 = stablehlo.add %arg3, %arg4 : tensor<f32>
      stablehlo.return %115 : tensor<f32>
    }) : (tensor<6x7xf32>, tensor<5x1xi32>, tensor<5x7xf32>) -> tensor<6x7xf32>
    %c_27 = stablehlo.constant dense<4> : tensor<i32>
    %74 = call @remainder(%arg1, %c_27) : (tensor<5xi32>, tensor<i32>) -> tensor<5xi32>
    %c_28 = stablehlo.constant dense<0> : tensor<i32>
    %75 = stablehlo.broadcast_in_dim %c_28, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %76 = stablehlo.compare LT, %74, %75, SIGNED : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi1>
    %c_29 = stablehlo.constant dense<7> : tensor<i32>
    %77 = stablehlo.broadcast_in_dim %c_29, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %78 = stablehlo.add %74, %77 : tensor<5xi32>
    %79 = stablehlo.select %76, %78, %74 : tensor<5xi1>, tensor<5xi32>
    %80 = stablehlo.broadcast_in_dim %79, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %cst_30 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %81 = stablehlo.broadcast_in_dim %cst_30, dims = [] : (tensor<f32>) -> tensor<5xf32>
    %82 = "stablehlo.scatter"(%arg0, %80, %81) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], index_vector_dim = 1>, unique_indices = true}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      %115 = stablehlo.add %arg3, %arg4 : tensor<f32>
      stablehlo.return %115 : tensor<f32>
    }) : (tensor<5x7xf32>, tensor<5x1xi32>, tensor<5xf32>) -> tensor<5x7xf32>
    %c_31 = stablehlo.constant dense<0> : tensor<i32>
    %83 = stablehlo.broadcast_in_dim %c_31, dims = [] : (tensor<i32>) -> tensor<9xi32>
    %c_32 = stablehlo.constant dense<0> : tensor<i32>
    %84 = stablehlo.broadcast_in_dim %c_32, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %85 = stablehlo.compare LT, %arg1, %84, SIGNED : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi1>
    %c_33 = stablehlo.constant dense<9> : tensor<i32>
    %86 = stablehlo.broadcast_in_dim %c_33, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %87 = stablehlo.add %arg1, %86 : tensor<5xi32>
    %88 = stablehlo.select %85, %87, %arg1 : tensor<5xi1>, tensor<5xi32>
    %89 = stablehlo.broadcast_in_dim %88, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %c_34 = stablehlo.constant dense<1> : tensor<i32>
    %90 = stablehlo.broadcast_in_dim %c_34, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %91 = "stablehlo.scatter"(%83, %89, %90) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
    ^bb0(%arg3: tensor<i32>, %arg4: tensor<i32>):
      %115 = stablehlo.add %arg3, %arg4 : tensor<i32>
      stablehlo.return %115 : tensor<i32>
    }) : (tensor<9xi32>, tensor<5x1xi32>, tensor<5xi32>) -> tensor<9xi32>
    %c_35 = stablehlo.constant dense<false> : tensor<i1>
    %92 = stablehlo.broadcast_in_dim %c_35, dims = [] : (tensor<i1>) -> tensor<8xi1>
    %c_36 = stablehlo.constant dense<0> : tensor<i32>
    %93 = stablehlo.broadcast_in_dim %c_36, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %94 = stablehlo.compare LT, %arg1, %93, SIGNED : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi1>
    %c_37 = stablehlo.constant dense<8> : tensor<i32>
    %95 = stablehlo.broadcast_in_dim %c_37, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %96 = stablehlo.add %arg1, %95 : tensor<5xi32>
    %97 = stablehlo.select %94, %96, %arg1 : tensor<5xi1>, tensor<5xi32>
    %98 = stablehlo.broadcast_in_dim %97, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %c_38 = stablehlo.constant dense<true> : tensor<i1>
    %99 = stablehlo.broadcast_in_dim %c_38, dims = [] : (tensor<i1>) -> tensor<5xi1>
    %100 = "stablehlo.scatter"(%92, %98, %99) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
    ^bb0(%arg3: tensor<i1>, %arg4: tensor<i1>):
      stablehlo.return %arg4 : tensor<i1>
    }) : (tensor<8xi1>, tensor<5x1xi32>, tensor<5xi1>) -> tensor<8xi1>
    %cst_39 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %101 = stablehlo.broadcast_in_dim %cst_39, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %c_40 = stablehlo.constant dense<0> : tensor<i32>
    %102 = stablehlo.broadcast_in_dim %c_40, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %103 = stablehlo.compare LT, %arg1, %102, SIGNED : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi1>
    %c_41 = stablehlo.constant dense<7> : tensor<i32>
    %104 = stablehlo.broadcast_in_dim %c_41, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %105 = stablehlo.add %arg1, %104 : tensor<5xi32>
    %106 = stablehlo.select %103, %105, %arg1 : tensor<5xi1>, tensor<5xi32>
    %107 = stablehlo.broadcast_in_dim %106, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %108 = stablehlo.broadcast_in_dim %101, dims = [1] : (tensor<2xf32>) -> tensor<5x2xf32>
    %c_42 = stablehlo.constant dense<5> : tensor<1xi32>
    %c_43 = stablehlo.constant dense<2147483647> : tensor<i32>
    %109 = stablehlo.broadcast_in_dim %c_43, dims = [] : (tensor<i32>) -> tensor<1xi32>
    %110 = stablehlo.minimum %c_42, %109 : tensor<1xi32>
    %111 = stablehlo.broadcast_in_dim %110, dims = [1] : (tensor<1xi32>) -> tensor<5x1xi32>
    %c_44 = stablehlo.constant dense<0> : tensor<i32>
    %112 = stablehlo.broadcast_in_dim %c_44, dims = [] : (tensor<i32>) -> tensor<5x1xi32>
    %113 = stablehlo.clamp %112, %107, %111 : tensor<5x1xi32>
    %114 = "stablehlo.scatter"(%arg0, %113, %108) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], index_vector_dim = 1>, unique_indices = true}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      stablehlo.return %arg4 : tensor<f32>
    }) : (tensor<5x7xf32>, tensor<5x1xi32>, tensor<5x2xf32>) -> tensor<5x7xf32>
    return %7, %15, %30, %39, %47, %55, %65, %70, %73, %82, %91, %100, %114 : tensor<5x7xf32>, tensor<5x7xf32>, tensor<5x7xf32>, tensor<5x7xf32>, tensor<5x7xf32>, tensor<5x7xf32>, tensor<5x7xf32>, tensor<5x7xf32>, tensor<6x7xf32>, tensor<5x7xf32>, tensor<9xi32>, tensor<8xi1>, tensor<5x7xf32>
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
}
