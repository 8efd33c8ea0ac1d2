// Package conformance holds tests and nothing else: they run the test suites that others have written for stores and for HTTP against a
// store, once directly and then through the real fenceproxy binary, and compare what passes and what fails, name by name.
//
// litmus speaks WebDAV to Apache, lighttpd and nginx and runs with all other tests. The suite of versitygw and http-cache-tests take
// minutes and run with FENCEPROXY_CONFORMANCE=1 ("make conformance"); versitygw has to be in PATH, and FENCEPROXY_CACHE_TESTS names the
// directory of http-cache-tests (npm install http-cache-tests@0.4.5).
//
// No suite can send a fencing token. A hop before the proxy adds it, and nothing else: it copies bytes.
//
// What a pass does not show: anything that the suites do not try, nor what clients do that are no suite.
package conformance
