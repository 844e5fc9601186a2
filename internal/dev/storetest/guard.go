package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"workflowagent/internal/server/store/scope"
)

// guardFunctions return the keys of the advisory locks that a transaction holds, and the key of an owner.
const guardFunctions = `
CREATE FUNCTION guard_held(modes TEXT[]) RETURNS BIGINT[] LANGUAGE sql AS $$
	SELECT COALESCE(array_agg((classid::bigint << 32) | objid::bigint), '{}') FROM pg_locks
	WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND objsubid = 1 AND granted AND mode = ANY(modes)
$$;
CREATE FUNCTION guard_key(level INT, name TEXT) RETURNS BIGINT LANGUAGE sql IMMUTABLE AS $$
	SELECT hashtextextended('scope ' || level || ' ' || name, 0)
$$`

// guardTable is the trigger of a table, with its name, the free columns, the free operations, the level of
// the server, the keys of the locks of which one suffices, and those of which a shared one suffices to add a
// row.
const guardTable = `
CREATE FUNCTION guard_%[1]s() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
	held BIGINT[];
	r RECORD;
	wanted BIGINT[];
BEGIN
	IF current_setting('lock_timeout') = '0' THEN
		RETURN NULL; -- not a write of a server
	END IF;
	IF TG_OP = ANY('%[3]s') OR TG_OP = 'UPDATE' AND ('*' = ANY('%[2]s') OR to_jsonb(OLD) - '%[2]s'::text[] = to_jsonb(NEW) - '%[2]s'::text[]) THEN
		RETURN NULL;
	END IF;
	held := guard_held('{ExclusiveLock}');
	IF guard_key(%[4]d, '') = ANY(held) THEN
		RETURN NULL;
	END IF;
	FOR i IN 1..2 LOOP
		CONTINUE WHEN i = 1 AND TG_OP = 'INSERT' OR i = 2 AND TG_OP = 'DELETE';
		IF i = 1 THEN r := OLD; ELSE r := NEW; END IF;
		wanted := array_remove(ARRAY[%[5]s]::bigint[], NULL);
		IF cardinality(wanted) > 0 AND NOT wanted && held
			AND NOT (TG_OP = 'INSERT' AND ARRAY[%[6]s]::bigint[] && guard_held('{ShareLock}')) THEN
			RAISE EXCEPTION 'a write has no lock of the owners of a row of %[1]s: %% %%', TG_OP, to_jsonb(r);
		END IF;
	END LOOP;
	RETURN NULL;
END $$;
CREATE TRIGGER guard AFTER INSERT OR UPDATE OR DELETE ON %[1]s FOR EACH ROW EXECUTE FUNCTION guard_%[1]s()`

// guard makes each table of a PostgreSQL database refuse changes of rows by writes that do not hold the lock
// of the rows' owners; see [tables].
func guard(ctx context.Context, dsn string) (err error) {
	db, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close(ctx)) }()
	if _, err := db.Exec(ctx, guardFunctions); err != nil {
		return err
	}
	rows, err := db.Query(ctx, "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, name := range names {
		of, known := tables[name]
		if !known && !slices.Contains(unowned, name) {
			return fmt.Errorf("the table %s has no owner: add it to the tables in owners.go", name)
		}
		if !known {
			continue
		}
		if _, err := db.Exec(ctx, of.trigger(name)); err != nil {
			return fmt.Errorf("guarding the table %s: %w", name, err)
		}
	}
	return nil
}

func (t table) trigger(name string) string {
	var free []string
	if t.append {
		free = append(free, "INSERT")
	}
	if t.expire {
		free = append(free, "DELETE")
	}
	owners := t.owners
	var shared []string
	if t.org != "" {
		owners = append(slices.Clip(owners), owner{scope.LevelOrganization, t.org})
	}
	var keys []string
	for _, o := range owners {
		key := fmt.Sprintf("guard_key(%d, %s)", o.level, o.key)
		keys = append(keys, key)
		if t.added && o.level == scope.LevelOrganization {
			shared = append(shared, key)
		}
	}
	list := func(values []string) string { return "{" + strings.Join(values, ",") + "}" }
	return fmt.Sprintf(guardTable, name, list(t.free), list(free), scope.LevelServer, strings.Join(keys, ", "), strings.Join(shared, ", "))
}
