tessera_test(accel_test SOURCES accel_test.cpp LINKS tessera_accel tessera_schedule tessera_interp WHOLE)
