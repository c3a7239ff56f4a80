package stint

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/stint-go/stint/internal/failure"
)

// RPCError is a function for WithErrorHandler. It answers gRPC, gRPC-Web and connect calls in
// their own protocol. Other requests get the limiter's default response:
//
//	stint.New(stint.Rate(10, time.Second), stint.WithKey(stint.RemoteIP()),
//		stint.WithErrorHandler(stint.RPCError))
//
// Without it, gRPC clients translate a 429 to UNAVAILABLE, and many retry such a call. With
// RPCError, a denial by a limit is RESOURCE_EXHAUSTED, whatever its HTTP status. The HTTP
// status of any other error is translated as in google.rpc.Code, for instance 401 to
// UNAUTHENTICATED and 503 to UNAVAILABLE. The message contains the name of the limit, but not
// the text of the error. RateLimit and Retry-After are sent in the response's header. Clients
// find these fields in the error's metadata. If there is a Retry-After, the details of the error
// have a google.rpc.RetryInfo with the same time.
//
//   - gRPC and gRPC-Web (Content-Type application/grpc…): 200 without a body. The header has
//     grpc-status, grpc-message and grpc-status-details-bin, which CORS must expose to browsers,
//     and grpc-retry-pushback-ms: a client whose retry policy has the code waits as long as
//     Retry-After says.
//   - connect, a unary call (a Connect-Protocol-Version field, or ?connect=v1 in a GET): the
//     HTTP status of the code, such as 429, and the error as JSON.
//   - connect, a stream (Content-Type application/connect+…): 200, and the error in the message
//     that ends the stream.
//
// For a gRPC server that isn't served through net/http, use package stintgrpc.
func RPCError(w http.ResponseWriter, r *http.Request, err error) {
	h, kind := w.Header(), r.Header.Get("Content-Type")
	code, message := rpcCode(err)
	seconds, noRetry := strconv.ParseUint(h.Get("Retry-After"), 10, 32)
	switch {
	case strings.HasPrefix(kind, "application/grpc"):
		h.Set("Content-Type", kind)
		h.Set("Grpc-Status", strconv.Itoa(code.number))
		h.Set("Grpc-Message", message) // it has nothing to escape
		if noRetry == nil {
			h.Set("Grpc-Retry-Pushback-Ms", strconv.FormatUint(seconds*1000, 10))
			h.Set("Grpc-Status-Details-Bin", base64.RawStdEncoding.EncodeToString(encodeRPCStatus(code, message, seconds)))
		}
		w.WriteHeader(http.StatusOK)
	case strings.HasPrefix(kind, "application/connect+"):
		const endOfStream = 2
		text := `{"error":` + connectError(code, message, seconds, noRetry == nil) + "}"
		h.Set("Content-Type", kind)
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{endOfStream}, uint32(len(text))), text...))
	case r.Header.Get("Connect-Protocol-Version") != "", r.Method == http.MethodGet &&
		r.URL.Query().Get("connect") == "v1":
		h.Set("Content-Type", "application/json")
		w.WriteHeader(code.status)
		_, _ = w.Write([]byte(connectError(code, message, seconds, noRetry == nil)))
	}
}

// connectError returns an error in connect's JSON, with a google.rpc.RetryInfo if the call can be retried.
func connectError(code rpcError, message string, seconds uint64, retry bool) string {
	details := ""
	if retry {
		details = fmt.Sprintf(`,"details":[{"type":"google.rpc.RetryInfo","value":%q}]`,
			base64.RawStdEncoding.EncodeToString(retryInfo(seconds)))
	}
	return fmt.Sprintf(`{"code":%q,"message":%q%s}`, code.name, message, details)
}

// An rpcError is a code of gRPC, as numbers and connect name it, and its HTTP status.
type rpcError struct {
	number int
	name   string
	status int
}

var (
	resourceExhausted  = rpcError{8, "resource_exhausted", http.StatusTooManyRequests}
	failedPrecondition = rpcError{9, "failed_precondition", http.StatusBadRequest}
	internalError      = rpcError{13, "internal", http.StatusInternalServerError}
)

// rpcErrors has the code of each status that is one's own, as google.rpc.Code says.
var rpcErrors = map[int]rpcError{
	http.StatusBadRequest:         {3, "invalid_argument", http.StatusBadRequest},
	http.StatusUnauthorized:       {16, "unauthenticated", http.StatusUnauthorized},
	http.StatusForbidden:          {7, "permission_denied", http.StatusForbidden},
	http.StatusNotFound:           {5, "not_found", http.StatusNotFound},
	http.StatusConflict:           {10, "aborted", http.StatusConflict},
	http.StatusTooManyRequests:    resourceExhausted,
	499:                           {1, "canceled", 499}, // as nginx logs a client that has left
	http.StatusNotImplemented:     {12, "unimplemented", http.StatusNotImplemented},
	http.StatusServiceUnavailable: {14, "unavailable", http.StatusServiceUnavailable},
	http.StatusGatewayTimeout:     {4, "deadline_exceeded", http.StatusGatewayTimeout},
}

// rpcCode returns the code and the message of an error.
func rpcCode(err error) (rpcError, string) {
	status := failure.Status(err)
	message := http.StatusText(status)
	if denied := denialIn(err); denied != nil {
		return resourceExhausted, message + ": limit " + denied.Decision.Limit
	}
	if code, known := rpcErrors[status]; known {
		return code, message
	}
	if status < http.StatusInternalServerError {
		return failedPrecondition, message
	}
	return internalError, message
}

// retryInfo returns a google.rpc.RetryInfo in the encoding of Protocol Buffers.
func retryInfo(seconds uint64) []byte {
	duration := binary.AppendUvarint([]byte{1 << 3}, seconds)
	return appendBytes(nil, 1, duration)
}

// encodeRPCStatus returns a google.rpc.Status with a RetryInfo, in the encoding of Protocol Buffers.
func encodeRPCStatus(code rpcError, message string, seconds uint64) []byte {
	detail := appendBytes(nil, 1, "type.googleapis.com/google.rpc.RetryInfo") // a google.protobuf.Any
	detail = appendBytes(detail, 2, retryInfo(seconds))
	status := binary.AppendUvarint([]byte{1 << 3}, uint64(code.number))
	status = appendBytes(status, 2, message)
	return appendBytes(status, 3, detail)
}

// appendBytes appends a field of text, bytes or a message, with its number and its length.
func appendBytes[T string | []byte](to []byte, field byte, value T) []byte {
	const lengthFollows = 2
	to = binary.AppendUvarint(append(to, field<<3|lengthFollows), uint64(len(value)))
	return append(to, value...)
}
