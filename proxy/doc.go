// Package proxy is the HTTP side of fenceproxy: it takes requests in, has [policies] say what they touch and which token they carry,
// lets [gate.Gate] admit writes in token order, and forwards them to one upstream.
//
// Make a [Proxy] with [New] and serve it with [Proxy.Handler], or use [Server], which also brings the listener's limits and an orderly
// stop. goproxy is the dispatcher: what reaches its NonproxyHandler is carried to the fence, and the answer back. The fence is one
// [net/http.RoundTripper], so acquiring the gate and releasing it stand in one function, and every way into the proxy shares it.
//
// What the client may rely on: a write that is refused was not forwarded, or the answer says that this is unknown; nothing is sent
// to the upstream twice once a byte of it has left; no precondition is dropped and no byte of a body is changed;
// the request target, the Host and all end-to-end headers arrive as they were sent; an answer that broke off never looks complete.
//
// What it does not do: cache, follow redirects, decompress, retry, or add headers of its own to a request.
package proxy
