# The same verbs on graphs as text: regions, states and symbols included.
if(TARGET tessera)
  add_test(NAME e2e.cli_graphs COMMAND ${TESSERA_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/cli_graphs_test.py $<TARGET_FILE:tessera>)
  set_tests_properties(e2e.cli_graphs PROPERTIES LABELS "e2e;slow" ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
endif()
