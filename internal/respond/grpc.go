package respond

import (
	"net/http"
	"strconv"
	"strings"
)

// rpcStatus returns the status of a response whose HTTP status is 200. For gRPC, it is the one that
// grpcStatus has for the code in the header or the trailer.
func rpcStatus(h http.Header) int {
	if !strings.HasPrefix(h.Get("Content-Type"), "application/grpc") {
		return http.StatusOK
	}
	const field = "Grpc-Status"
	text := h.Get(field)
	if text == "" {
		text = h.Get(http.TrailerPrefix + field)
	}
	switch code, err := strconv.ParseUint(text, 10, 32); {
	case text == "":
		return http.StatusOK
	case err != nil || code >= uint64(len(grpcStatus)):
		return http.StatusInternalServerError
	default:
		return grpcStatus[code]
	}
}

// grpcStatus has the status that each code of gRPC stands for, as gateways translate them.
var grpcStatus = [...]int{
	0:  http.StatusOK,
	1:  Unanswered, // canceled
	2:  http.StatusInternalServerError,
	3:  http.StatusBadRequest,
	4:  http.StatusGatewayTimeout,
	5:  http.StatusNotFound,
	6:  http.StatusConflict,
	7:  http.StatusForbidden,
	8:  http.StatusTooManyRequests,
	9:  http.StatusBadRequest,
	10: http.StatusConflict,
	11: http.StatusBadRequest,
	12: http.StatusNotImplemented,
	13: http.StatusInternalServerError,
	14: http.StatusServiceUnavailable,
	15: http.StatusInternalServerError,
	16: http.StatusUnauthorized,
}
