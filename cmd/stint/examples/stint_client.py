"""A client of stint serve, for Python's standard library. Copy it."""
import http.client
import json
import urllib.error
import urllib.request


class Limiter:
    """The limits of a policy file, at any of its replicas: ["http://10.0.0.8:8083", ...]."""

    def __init__(self, name, replicas, timeout=5):
        self.name, self.replicas, self.timeout = name, list(replicas), timeout

    def take(self, key, cost=1):
        return Permit(self, self.post("take", limiter=self.name, key=key, cost=cost))

    def post(self, call, **fields):
        body, failure = json.dumps(fields).encode(), None
        for replica in self.replicas:
            try:
                request = urllib.request.Request(f"{replica}/v1/{call}", body, {"Content-Type": "application/json"})
                with urllib.request.urlopen(request, timeout=self.timeout) as response:
                    return json.load(response)
            except urllib.error.HTTPError as e:
                e.problem = json.load(e) if e.headers.get_content_type() == "application/problem+json" else {}
                raise  # an answer: 409 if the token is used, 401 if it has expired, 503 if the store fails
            except (OSError, http.client.HTTPException) as e:
                failure = e  # this replica is gone, perhaps after it has charged a take, or used a token
        raise failure


class Permit:
    """Not allowed: wait for retry_after seconds. None: such a cost never passes."""

    def __init__(self, limiter, answer):
        self.limiter = limiter
        self.update(answer)

    def update(self, answer):
        self.allowed, self.token, self.limits = answer["allowed"], answer.get("token"), answer["limits"]
        waits = [limit["retry_after_ms"] for limit in self.limits]
        self.retry_after = None if None in waits else max(waits, default=0) / 1000
        return self.allowed

    def extend(self, cost):
        return self.call("extend", cost)

    def settle(self, cost):
        return self.call("settle", cost)

    def call(self, name, cost):
        try:
            return self.update(self.limiter.post(name, token=self.token, cost=cost))
        except urllib.error.HTTPError as e:
            self.token = e.problem.get("token", self.token)  # the token that was sent may be used up
            raise
