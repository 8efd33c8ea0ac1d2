// Package leg sends requests over the last leg, from the proxy to its upstream, in HTTP/1.1.
//
// Call [Client.Do] with a request whose body, if any, is at hand. It differs from [net/http.Transport] in what a fence needs:
//
//   - It knows whether a byte of the request was handed to the network ([Error.Sent]): only then is a write in doubt.
//   - It sends nothing twice once a byte has left. A request goes to a second connection only if the first, an idle one, took nothing.
//   - The request target is sent as it was received.
//   - A connection that is given up is reset, not closed in order (RFC 9293 section 3.6), provided that the dialler set SO_LINGER to zero.
//   - The timeout is one of silence: it starts anew with every byte that moves either way.
//   - One request costs no goroutine, unless it has a long body.
//
// Responses are read by [net/http.ReadResponse]. What it does not do: HTTP/2, proxies, redirects, cookies, decompression, Expect.
package leg
