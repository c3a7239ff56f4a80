package project

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/tenants"
)

// planIn returns a function that loads a tenant's plan.
func planIn(db *sql.DB) func(context.Context, string) ([]stint.Limit, error) {
	return func(ctx context.Context, tenant string) ([]stint.Limit, error) {
		var perMinute int
		var perMonth *int
		row := db.QueryRowContext(ctx, "SELECT per_minute, per_month FROM plans WHERE tenant = $1", tenant)
		if err := row.Scan(&perMinute, &perMonth); errors.Is(err, sql.ErrNoRows) {
			return nil, tenants.ErrNoPlan // 403
		} else if err != nil {
			return nil, err // the last valid plan stays in force
		}
		limits := []stint.Limit{stint.Rate(int64(perMinute), time.Minute, stint.WithName("calls"))}
		if perMonth != nil { // NULL is no quota
			limits = append(limits, stint.Quota(int64(*perMonth), stint.Monthly, stint.WithName("month")))
		}
		return limits, nil
	}
}

// forgetChanged drops cached plans that have changed, until ctx ends. Run it once in each process.
func forgetChanged(ctx context.Context, database string, plans *tenants.Cache) {
	for ctx.Err() == nil {
		err := listen(ctx, database, plans)
		if ctx.Err() == nil {
			slog.Warn("no notifications of changed plans", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second): // then connect again
		}
	}
}

func listen(ctx context.Context, database string, plans *tenants.Cache) error {
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "LISTEN plan_changed"); err != nil {
		return err
	}
	for {
		changed, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		plans.Forget(changed.Payload)
	}
}

// A plan that changes in PostgreSQL applies at once, and the tenant keeps its count.
func TestPlansInSQL(t *testing.T) {
	database := startPostgres(t)
	db, err := sql.Open("pgx", database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	run := func(statement string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	run(blocks(t, "docs/tenants.md", "sql")[0])
	run("INSERT INTO plans VALUES ('acme', 5, 1000), ('globex', 7, NULL), ('zero', 0, NULL)")

	plans, err := tenants.New(planIn(db), tenants.WithTTL(10*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var listening sync.WaitGroup
	listening.Go(func() { forgetChanged(ctx, database, plans) })
	defer listening.Wait()
	defer cancel()
	until(t, "the process listens", func() bool {
		n := 0
		const listeners = "SELECT count(*) FROM pg_stat_activity WHERE query = 'LISTEN plan_changed' AND state = 'idle'"
		err := db.QueryRowContext(ctx, listeners).Scan(&n)
		return err == nil && n == 1
	})

	lim := stint.Must(stint.New(plans.Limits(stint.Header("X-Tenant")), stint.WithKey(stint.Header("X-Tenant")),
		stint.WithFailurePolicy(stint.FailClosed), stint.WithLogger(slog.New(slog.DiscardHandler))))
	h := stinthttp.Middleware(lim)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, l := range stint.FromContext(r.Context()).Decision().Limits {
			fmt.Fprintf(w, "%s %d ", l.Name, l.Capacity)
		}
	}))
	see := func(tenant string) string {
		w := get(h, "/", "X-Tenant", tenant)
		if w.Code != http.StatusOK {
			return strconv.Itoa(w.Code)
		}
		return strings.TrimSpace(w.Body.String())
	}
	for tenant, want := range map[string]string{
		"acme": "calls 5 month 1000", "globex": "calls 7", "nobody": "403", "zero": "503",
	} {
		if got := see(tenant); got != want {
			t.Errorf("%s: %s, want %s", tenant, got, want)
		}
	}

	for range 4 { // all that acme has left
		see("acme")
	}
	if got := see("acme"); got != "429" {
		t.Errorf("acme, beyond its plan: %s", got)
	}
	run("UPDATE plans SET per_minute = 50000 WHERE tenant = 'acme'")
	until(t, "acme has its new plan", func() bool { return see("acme") == "calls 50000 month 1000" })
	run("DELETE FROM plans WHERE tenant = 'acme'")
	until(t, "acme has no plan", func() bool { return see("acme") == "403" })
}

// until polls until PostgreSQL and the program have reached a state. They are processes, which run on real time.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never happens that %s", what)
		}
	}
}

// startPostgres starts a PostgreSQL server on a Unix socket, and ends it with the test.
func startPostgres(t *testing.T) (database string) {
	// Debian has it in no directory of the PATH.
	installed, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	postgres, err := exec.LookPath("postgres")
	switch {
	case len(installed) > 0:
		postgres = installed[0]
	case err != nil && os.Getenv("STINT_REQUIRE_REDIS") != "":
		t.Fatal("no PostgreSQL: apt-get install postgresql changes that")
	case err != nil:
		t.Skip("no postgres")
	}
	postgres, err = filepath.EvalSymlinks(postgres)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var as []string
	if os.Geteuid() == 0 { // root, as whom the server doesn't run
		owner, err := user.Lookup("postgres")
		if err != nil {
			t.Skip(err)
		}
		tools(t, "setpriv")
		uid, _ := strconv.Atoi(owner.Uid)
		gid, _ := strconv.Atoi(owner.Gid)
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
		as = []string{"setpriv", "--reuid", owner.Uid, "--regid", owner.Gid, "--clear-groups"}
	}
	command := func(name string, args ...string) *exec.Cmd {
		args = append(append(as[:len(as):len(as)], filepath.Join(filepath.Dir(postgres), name)), args...)
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = dir
		return cmd
	}
	data := filepath.Join(dir, "data")
	if out, err := command("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	server := command("postgres", "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(os.Interrupt)
		_ = server.Wait()
	})
	database = "host=" + dir + " user=postgres database=postgres"
	until(t, "PostgreSQL answers", func() bool {
		conn, err := pgx.Connect(t.Context(), database)
		if err == nil {
			_ = conn.Close(t.Context())
		}
		return err == nil
	})
	return database
}
