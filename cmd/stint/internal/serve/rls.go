package serve

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	service "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
)

// maxDescriptors bounds the descriptors of a request. Envoy sends one for each rate limit of a route.
const maxDescriptors = 100

// rateLimits is Envoy's rate limit service (RLS).
type rateLimits struct {
	service.UnimplementedRateLimitServiceServer
	domains func() map[string]*domain
	log     *occasionally
}

func (s *rateLimits) ShouldRateLimit(
	ctx context.Context, req *service.RateLimitRequest,
) (*service.RateLimitResponse, error) {
	asked := req.GetDescriptors()
	switch {
	case req.GetDomain() == "":
		return nil, status.Error(codes.InvalidArgument, "no domain")
	case len(asked) == 0:
		return nil, status.Error(codes.InvalidArgument, "no descriptors")
	case len(asked) > maxDescriptors:
		return nil, status.Errorf(codes.InvalidArgument, "%d descriptors, at most %d are decided", len(asked), maxDescriptors)
	}
	var all []*descriptor
	var places []int // of all, among asked
	for i, a := range asked {
		hits := uint64(max(req.GetHitsAddend(), 1))
		if h := a.GetHitsAddend(); h != nil {
			hits = h.GetValue()
		}
		if hits > store.MaxCost {
			return nil, status.Errorf(codes.InvalidArgument, "hits_addend %d, at most %d is charged", hits, int64(store.MaxCost))
		}
		if a.GetLimit() != nil {
			s.log.warn("rate limit service: a descriptor brings a limit of its own, which is ignored", "domain",
				brief(req.GetDomain()))
		}
		if a.GetIsNegativeHits() {
			s.log.warn("rate limit service: is_negative_hits is ignored: nothing is charged or refunded", "domain",
				brief(req.GetDomain()))
			continue
		}
		all, places = append(all, &descriptor{entries: a.GetEntries(), hits: int64(hits)}), append(places, i)
	}
	verdicts := make([]verdict, len(asked))
	if d := s.domains()[req.GetDomain()]; d != nil {
		for i, v := range d.decide(ctx, all) {
			verdicts[places[i]] = v
		}
		return answer(d.rules.Load(), verdicts), nil
	}
	s.log.warn("rate limit service: no file has this domain, so its requests pass", "domain", brief(req.GetDomain()))
	return answer(nil, verdicts), nil
}

// answer is the response to a request whose descriptors got verdicts.
func answer(r *rules, verdicts []verdict) *service.RateLimitResponse {
	resp := &service.RateLimitResponse{OverallCode: service.RateLimitResponse_OK}
	for i := range verdicts {
		v := &verdicts[i]
		s := &service.RateLimitResponse_DescriptorStatus{Code: service.RateLimitResponse_OK}
		if v.unlimited {
			s.LimitRemaining = math.MaxUint32
		}
		if v.denied {
			s.Code, resp.OverallCode = service.RateLimitResponse_OVER_LIMIT, service.RateLimitResponse_OVER_LIMIT
		}
		for _, l := range v.decision.Limits {
			if l.Name == v.decision.Limit {
				s.CurrentLimit = r.shown[l.Name]
				s.LimitRemaining, s.DurationUntilReset = clamp(l.Remaining), durationpb.New(l.ResetAfter)
			}
		}
		resp.Statuses = append(resp.Statuses, s)
	}
	if v := deciding(verdicts); v != nil {
		for _, name := range slices.Sorted(headerNames(v.header)) {
			resp.ResponseHeadersToAdd = append(resp.ResponseHeadersToAdd,
				&core.HeaderValue{Key: strings.ToLower(name), Value: v.header.Get(name)})
		}
	}
	return resp
}

// deciding returns the verdict whose fields the client gets: of those that deny, the one with the longest time
// to wait; otherwise the one with the least left. It returns nil if none has fields.
func deciding(verdicts []verdict) (best *verdict) {
	for i := range verdicts {
		v := &verdicts[i]
		switch {
		case len(v.header) == 0 || len(v.decision.Limits) == 0:
		case best == nil, v.denied && !best.denied,
			v.denied == best.denied && v.denied && v.decision.RetryAfter > best.decision.RetryAfter,
			v.denied == best.denied && !v.denied && v.decision.Remaining < best.decision.Remaining:
			best = v
		}
	}
	return best
}

// headerNames yields the names of the fields about limits.
func headerNames(h http.Header) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for name := range h {
			if name == "Retry-After" || strings.HasPrefix(name, "Ratelimit") || strings.HasPrefix(name, "X-Ratelimit") {
				if !yield(name) {
					return
				}
			}
		}
	}
}

func clamp(n int64) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }

func asDenied(err error, to **stint.DeniedError) bool { return errors.As(err, to) }

func isStoreError(err error) bool {
	failed := (*stint.StoreError)(nil)
	return errors.As(err, &failed)
}

// fromTrusted refuses calls of peers that aren't trusted, before it reads their messages: an interceptor runs afterwards.
func fromTrusted(t *trusted, log *occasionally) tap.ServerInHandle {
	return func(ctx context.Context, _ *tap.Info) (context.Context, error) {
		p, ok := peer.FromContext(ctx)
		if !ok {
			return nil, status.Error(codes.Internal, "a call without a peer")
		}
		if !t.has(p.Addr.String()) {
			log.warn("rate limit service: a peer that isn't trusted: add its network to --trust, if it is an Envoy", "peer",
				p.Addr.String())
			return nil, status.Error(codes.PermissionDenied, "this address isn't a trusted proxy's")
		}
		return ctx, nil
	}
}

// stopGRPC lets calls in flight end, until ctx ends.
func stopGRPC(ctx context.Context, s *grpc.Server) error {
	done := make(chan struct{})
	go func() { s.GracefulStop(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		s.Stop()
		<-done
		return fmt.Errorf("rate limit service: %w", errCut)
	}
}
