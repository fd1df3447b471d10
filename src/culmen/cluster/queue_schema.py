"""Tables and functions of the queue in PostgreSQL, and the rights of its two sides.

The driver's role owns the schema and writes its tables. A worker's role has no right on any table:
it calls six functions, each of which takes the worker's token first, so that a worker can neither
read the runs of others nor answer for another worker. Times are the server's alone.

States of an item: 0 ready, 1 leased, 2 answered, 3 lost. Copies of one item (same `run` and `key`)
go to different workers: 0, or 0 and 1 if the evaluation is checked, 2 where these differ, and 3 for
what a worker answered before it was marked.
"""

from __future__ import annotations

from typing import LiteralString

SCHEMA = "culmen_queue"
ROLE = "culmen_worker"
WORK = "culmen_queue_work"
"""Channel that announces new items."""
ENDED = "culmen_queue_ended"
"""Channel that announces leases that were ended."""
MOST_BYTES = 16 * 2**20
"""Bytes of one answer, at most."""

_TABLES: LiteralString = """
CREATE TABLE format (version integer PRIMARY KEY);
CREATE TABLE run (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    session text NOT NULL,
    parcel bytea NOT NULL,
    terms bytea NOT NULL,
    quota integer NOT NULL,
    retries integer NOT NULL,
    lease_seconds double precision NOT NULL,
    seen timestamptz NOT NULL
);
CREATE TABLE artifact (
    run integer NOT NULL REFERENCES run ON DELETE CASCADE,
    hash bytea NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (run, hash)
);
CREATE TABLE worker (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    token bytea NOT NULL UNIQUE,
    runs text[],
    trusted boolean NOT NULL DEFAULT false,
    revoked boolean NOT NULL DEFAULT false,
    made timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE process (
    id text PRIMARY KEY,
    worker integer NOT NULL REFERENCES worker ON DELETE CASCADE,
    host text NOT NULL,
    slots integer NOT NULL,
    seen timestamptz NOT NULL
);
CREATE TABLE item (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run integer NOT NULL REFERENCES run ON DELETE CASCADE,
    key bytea NOT NULL,
    copy smallint NOT NULL DEFAULT 0,
    candidate bytea NOT NULL,
    job bytea NOT NULL,
    seconds double precision NOT NULL,
    state smallint NOT NULL DEFAULT 0,
    tries integer NOT NULL DEFAULT 0,
    worker integer REFERENCES worker,
    process text,
    lease uuid,
    expires timestamptz,
    reply bytea,
    reason text,
    taken boolean NOT NULL DEFAULT false,
    UNIQUE (run, key, copy)
) WITH (fillfactor = 70);
CREATE INDEX item_ready ON item (run, id) WHERE state = 0;
CREATE INDEX item_leased ON item (run) WHERE state = 1;
CREATE INDEX item_held ON item (worker) WHERE state = 1;
CREATE INDEX item_expiring ON item (expires) WHERE state = 1;
CREATE INDEX item_ended ON item (run) WHERE state >= 2 AND NOT taken;
CREATE TABLE mark (
    run integer NOT NULL REFERENCES run ON DELETE CASCADE,
    worker integer NOT NULL REFERENCES worker ON DELETE CASCADE,
    PRIMARY KEY (run, worker)
);
CREATE TABLE finding (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run integer NOT NULL REFERENCES run ON DELETE CASCADE,
    worker integer REFERENCES worker ON DELETE CASCADE,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    text text NOT NULL
);
"""

_OWN_FUNCTIONS: LiteralString = """
CREATE FUNCTION worker_of(secret text) RETURNS worker LANGUAGE plpgsql STABLE
SET search_path = culmen_queue, pg_temp AS $$
DECLARE me worker;
BEGIN
    SELECT * INTO me FROM worker
        WHERE token = sha256(convert_to(secret, 'UTF8')) AND NOT revoked;
    IF NOT FOUND THEN RAISE 'the token is not valid' USING ERRCODE = 'CQ001'; END IF;
    RETURN me;
END $$;

CREATE FUNCTION may_serve(me worker, asked run) RETURNS boolean LANGUAGE sql STABLE
SET search_path = culmen_queue, pg_temp AS $$
    SELECT (me.runs IS NULL OR asked.name = ANY (me.runs))
        AND NOT EXISTS (SELECT 1 FROM mark WHERE run = asked.id AND worker = me.id)
$$;

CREATE FUNCTION end_try(ended bigint[], why text) RETURNS void LANGUAGE sql
SET search_path = culmen_queue, pg_temp AS $$
    WITH again AS (
        UPDATE item SET lease = NULL, expires = NULL, process = NULL, reason = why,
            state = CASE WHEN item.tries > run.retries THEN 3 ELSE 0 END,
            worker = CASE WHEN item.tries > run.retries THEN item.worker END
        FROM run WHERE item.id = ANY (ended) AND run.id = item.run AND item.state = 1
        RETURNING item.run, item.state)
    SELECT pg_notify(CASE state WHEN 0 THEN 'culmen_queue_work' ELSE 'culmen_queue_run_' || run END,
        '') FROM again GROUP BY run, state
$$;

CREATE FUNCTION end_expired() RETURNS void LANGUAGE sql
SET search_path = culmen_queue, pg_temp AS $$
    SELECT end_try(array_agg(id), 'worker_died') FROM (
        SELECT id FROM item WHERE state = 1 AND expires < clock_timestamp()
        ORDER BY id LIMIT 1000 FOR UPDATE SKIP LOCKED) AS late HAVING count(*) > 0
$$;

CREATE FUNCTION give_back(ended bigint[]) RETURNS void LANGUAGE sql
SET search_path = culmen_queue, pg_temp AS $$
    UPDATE item SET tries = tries - 1 WHERE state = 1 AND id = ANY (ended);
    SELECT end_try(ended, 'given_back')
$$;
"""

_WORKER_FUNCTIONS: LiteralString = """
CREATE FUNCTION beat(
    secret text, asking text, host text, slots integer, held uuid[], leaving boolean
) RETURNS TABLE (worker_name text, kept uuid[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = culmen_queue, pg_temp AS $$
DECLARE me worker := worker_of(secret);
BEGIN
    PERFORM end_expired();
    IF leaving THEN
        PERFORM give_back(array(SELECT id FROM item WHERE state = 1 AND worker = me.id
            AND process = asking));
        DELETE FROM process WHERE id = asking AND worker = me.id;
        RETURN QUERY SELECT me.name, '{}'::uuid[];
        RETURN;
    END IF;
    INSERT INTO process VALUES (asking, me.id, left(host, 200), slots, clock_timestamp())
        ON CONFLICT (id) DO UPDATE SET seen = clock_timestamp(), slots = excluded.slots
        WHERE process.worker = me.id;
    RETURN QUERY WITH renewed AS (
        UPDATE item SET expires = clock_timestamp() + run.lease_seconds * interval '1 second'
        FROM run WHERE run.id = item.run AND item.state = 1 AND item.worker = me.id
            AND item.lease = ANY (held)
        RETURNING item.lease)
    SELECT me.name, coalesce((SELECT array_agg(lease) FROM renewed), '{}');
END $$;

CREATE FUNCTION pull(
    secret text, asking text, free integer, wanted text[], refused text[]
) RETURNS TABLE (item_id bigint, item_lease uuid, run_id integer, run_session text,
    item_job bytea, item_parts bytea, item_seconds double precision,
    lease_seconds double precision)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = culmen_queue, pg_temp AS $$
DECLARE me worker := worker_of(secret); chosen run; found_item item;
BEGIN
    PERFORM pg_advisory_xact_lock(1668639857, me.id);  -- one process of a worker after the other
    <<filling>> FOR _ IN 1 .. least(free, 64) LOOP
        FOR chosen IN SELECT run.* FROM run
            WHERE EXISTS (SELECT 1 FROM item WHERE item.run = run.id AND item.state = 0)
                AND run.session <> ALL (refused) AND may_serve(me, run)
                AND (wanted IS NULL OR run.name = ANY (wanted))
            ORDER BY (SELECT count(*) FROM item WHERE item.run = run.id AND item.state = 1), run.id
        LOOP
            IF chosen.quota > 0 THEN
                PERFORM 1 FROM run WHERE run.id = chosen.id FOR UPDATE;
                CONTINUE WHEN chosen.quota <= (
                    SELECT count(*) FROM item WHERE item.run = chosen.id AND item.state = 1);
            END IF;
            SELECT * INTO found_item FROM item
                WHERE item.run = chosen.id AND item.state = 0 AND NOT EXISTS (
                    SELECT 1 FROM item other WHERE other.run = item.run AND other.key = item.key
                        AND other.copy <> item.copy AND other.worker = me.id AND other.state > 0)
                ORDER BY item.id LIMIT 1 FOR UPDATE SKIP LOCKED;
            CONTINUE WHEN NOT FOUND;
            UPDATE item SET state = 1, tries = item.tries + 1, worker = me.id, process = asking,
                lease = gen_random_uuid(), reason = NULL,
                expires = clock_timestamp() + chosen.lease_seconds * interval '1 second'
                WHERE item.id = found_item.id RETURNING * INTO found_item;
            RETURN QUERY SELECT found_item.id, found_item.lease, chosen.id, chosen.session,
                found_item.job, (SELECT artifact.body FROM artifact WHERE artifact.run = chosen.id
                    AND artifact.hash = found_item.candidate), found_item.seconds,
                chosen.lease_seconds;
            CONTINUE filling;
        END LOOP;
        EXIT;
    END LOOP;
END $$;

CREATE FUNCTION finish(secret text, answered bigint, held uuid, answer bytea) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = culmen_queue, pg_temp AS $$
DECLARE me worker := worker_of(secret); whose integer;
BEGIN
    IF octet_length(answer) > 16777216 THEN
        RAISE 'the answer is too large' USING ERRCODE = 'CQ002';
    END IF;
    UPDATE item SET state = 2, reply = answer, taken = false, expires = NULL
        WHERE id = answered AND lease = held AND state = 1 AND worker = me.id
        RETURNING run INTO whose;
    IF FOUND THEN
        PERFORM pg_notify('culmen_queue_run_' || whose, '');
        RETURN true;
    END IF;
    RETURN EXISTS (SELECT 1 FROM item WHERE id = answered AND lease = held AND state = 2
        AND worker = me.id);  -- sent twice, as its acknowledgement was lost
END $$;

CREATE FUNCTION fail(
    secret text, failed bigint, held uuid, why text, refusal text
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = culmen_queue, pg_temp AS $$
DECLARE me worker := worker_of(secret); whose integer;
BEGIN
    SELECT run INTO whose FROM item
        WHERE id = failed AND lease = held AND state = 1 AND worker = me.id FOR UPDATE;
    IF NOT FOUND THEN RETURN; END IF;
    IF refusal IS NULL THEN
        PERFORM end_try(ARRAY[failed], left(why, 100));
    ELSE
        PERFORM give_back(ARRAY[failed]);
        INSERT INTO finding (run, worker, text)
            VALUES (whose, me.id, 'worker ' || me.name || ': ' || left(refusal, 500));
    END IF;
END $$;

CREATE FUNCTION describe(secret text, asked integer)
RETURNS TABLE (name text, session text, parcel bytea, terms bytea)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = culmen_queue, pg_temp AS $$
DECLARE me worker := worker_of(secret);
BEGIN
    RETURN QUERY SELECT run.name, run.session, run.parcel, run.terms FROM run
        WHERE run.id = asked AND may_serve(me, run);
END $$;

CREATE FUNCTION read_artifact(secret text, asked integer, wanted bytea) RETURNS bytea
LANGUAGE plpgsql SECURITY DEFINER SET search_path = culmen_queue, pg_temp AS $$
DECLARE me worker := worker_of(secret);
BEGIN
    RETURN (SELECT body FROM artifact, run whole WHERE artifact.run = asked
        AND hash = wanted AND whole.id = asked AND may_serve(me, whole));
END $$;
"""

_WORKER_CALLS = (
    "beat(text, text, text, integer, uuid[], boolean)",
    "pull(text, text, integer, text[], text[])",
    "finish(text, bigint, uuid, bytea)",
    "fail(text, bigint, uuid, text, text)",
    "describe(text, integer)",
    "read_artifact(text, integer, bytea)",
)

MIGRATIONS: tuple[LiteralString, ...] = (
    _TABLES
    + _OWN_FUNCTIONS
    + _WORKER_FUNCTIONS
    + "REVOKE ALL ON ALL FUNCTIONS IN SCHEMA culmen_queue FROM PUBLIC;",
    "ALTER TABLE worker ADD COLUMN place text, ADD COLUMN label text;",  # where it was launched
)
"""Scripts that bring the schema from one version to the next; the first one makes it."""


def worker_grants(database: str, role: str = ROLE) -> str:
    """SQL that gives a role the rights of a worker, and no others."""
    calls = ",\n    ".join(f"{SCHEMA}.{call}" for call in _WORKER_CALLS)
    return "\n".join(
        (
            f"CREATE ROLE {role} LOGIN PASSWORD '...' CONNECTION LIMIT 200;",
            f"ALTER ROLE {role} SET statement_timeout = '60s';",
            f'REVOKE TEMPORARY ON DATABASE "{database}" FROM PUBLIC;',
            f'GRANT CONNECT ON DATABASE "{database}" TO {role};',
            f"GRANT USAGE ON SCHEMA {SCHEMA} TO {role};",
            f"GRANT EXECUTE ON FUNCTION\n    {calls}\nTO {role};",
        )
    )
