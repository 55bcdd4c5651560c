BEGIN TRANSACTION;
CREATE TABLE declarations (
    kind   TEXT NOT NULL,
    name   TEXT NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;
CREATE TABLE definitions (
    name     TEXT NOT NULL,
    revision INTEGER NOT NULL,
    active   INTEGER NOT NULL,
    record   TEXT NOT NULL,
    PRIMARY KEY (name, revision)
) WITHOUT ROWID;
INSERT INTO "definitions" VALUES('windfall-run',1,1,'{"name":"windfall-run","revision":1,"container":{"image":"windfall/host","resources":{"vcpus":1,"memory_mib":2048,"gpus":0},"command":[],"environment":{},"shared_memory_mib":null,"log_group":"/aws/batch/job","log_prefix":null,"entrypoint":null,"on_host":null,"options":{"user":null,"privileged":false,"read_only_root":false,"init":false,"ulimits":[],"mounts":[],"tmpfs":[],"devices":[],"secrets":[],"max_swap_mib":null,"swappiness":null,"pull":"missing","network":null},"name":"default","fargate_beside":null,"has_role":false},"parameters":{},"retry":{"attempts":1,"rules":[]},"timeout_s":null,"propagate_tags":false,"tags":{},"active":true,"registered_at":1794829040952,"deregistered_at":null,"document":"{\"type\":\"container\",\"containerProperties\":{\"image\":\"windfall/host\",\"command\":[],\"resourceRequirements\":[{\"type\":\"VCPU\",\"value\":\"1\"},{\"type\":\"MEMORY\",\"value\":\"2048\"}]}}","priority":0,"consumables":[],"nodes":null,"shared":true}');
CREATE TABLE environments (name TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "environments" VALUES('windfall','{"name":"windfall","provisioning":"EC2","min_vcpus":0,"max_vcpus":1000000,"switch":"ENABLED","engine":null,"uuid":"1916520c-26fa-45ec-ae20-d1b0032e1008","created_at":1794829040926,"tags":{},"document":"{\"type\":\"MANAGED\",\"computeResources\":{\"type\":\"EC2\",\"minvCpus\":0,\"maxvCpus\":1000000,\"instanceTypes\":[\"optimal\"],\"subnets\":[]}}","instance_types":["optimal"],"allocation":null,"bid_percent":null}');
CREATE TABLE finished_counts (
    queue  TEXT NOT NULL,
    state  TEXT NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (queue, state)
) WITHOUT ROWID;
INSERT INTO "finished_counts" VALUES('windfall','SUCCEEDED',1);
CREATE TABLE highest (name TEXT PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO "highest" VALUES('order',2);
CREATE TABLE images (pattern TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE instances (id TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "instances" VALUES('i-ec6cb399ac7965bac','{"id":"i-ec6cb399ac7965bac","environment":"windfall","type":"local","total":{"vcpus":2.0,"memory_mib":4096,"gpus":0},"state":"READY","machine":"this-host","launched_at":1794829040958,"is_share":true,"usd_hour":null,"on_demand_usd_hour":null,"reclaim_at":null,"leave_at":null}');
CREATE TABLE jobs (
    seq         INTEGER PRIMARY KEY,
    id          TEXT NOT NULL,
    parent      TEXT,
    child_index INTEGER,
    queue       TEXT,
    name        TEXT,
    name_folded TEXT,
    definition  TEXT,
    created_at  INTEGER NOT NULL,
    state       TEXT NOT NULL,
    stopped_at  INTEGER,
    ord         INTEGER NOT NULL,
    record      TEXT NOT NULL,
    submission  TEXT
, consumables TEXT, share TEXT);
INSERT INTO "jobs" VALUES(1,'b41f39fd-925a-45bf-8805-48b18d86812d',NULL,NULL,'windfall','done','done','windfall-run:1',1794829040958,'SUCCEEDED',1794829040977,1,'{"runnable_at":1794829040958,"started_at":1794829040977,"status_reason":"Essential container in task exited","attempts":[{"number":1,"token":"b41f39fd-925a-45bf-8805-48b18d86812d#1","task_id":"01a1e425bd4046a404c28771f3a9215b","environment":"windfall","instance":"i-ec6cb399ac7965bac","gpu_ids":[],"log_stream":"windfall-run/default/01a1e425bd4046a404c28771f3a9215b","placed_at":1794829040960,"started_at":1794829040977,"stopped_at":1794829040977,"stop_at":null,"stop_cause":null,"deadline_at":null,"stop_words":null,"stop_for":null,"exit_code":0,"reason":null,"status_reason":"Essential container in task exited","isolation":"process","prepared_at":null,"exited_at":null,"doing":null,"restored":null,"checkpoint":null,"alarm":null,"progress":null,"commit":null,"failure":null,"diagnosis":null,"gpu_share":null,"instance_type":"local","market":"on-demand","usd_hour":null,"on_demand_usd_hour":null}]}','{"name":"done","queue":"windfall","definition":"windfall-run:1","resources":{"vcpus":1.0,"memory_mib":2048,"gpus":0},"retry":{"attempts":1,"rules":[]},"timeout_s":null,"array_size":null,"depends_on":[],"overrides":{"command":["sh","-c","echo was here"],"environment":{},"vcpus":1.0,"memory_mib":2048,"gpus":null},"parameters":{},"tags":{},"propagate_tags":false,"submitter":{"tenant":"default","key_id":"WNDF4E2GVIDBX62UY5YL","is_admin":true,"user":null},"document":"{}","kind":"batch","container":null,"staging":null,"free_interruptions":false,"instance_type":null,"limits":null,"budget_usd":null,"gpu_wish":null,"larger_gpu_on_oom":false,"stays_on_sick_gpu":false,"runtime":null,"pull":null,"worker":null,"share":null,"priority":0,"consumables":[],"preemptions_max":null,"nodes":null,"replaces_lost_nodes":false,"service_job":null}',NULL,NULL);
INSERT INTO "jobs" VALUES(2,'ed84bd3a-0061-4282-a80a-450d7494e9b4',NULL,NULL,'windfall','waits','waits','windfall-run:1',1794829041381,'RUNNING',NULL,2,'{"runnable_at":1794829041381,"started_at":1794829041394,"attempts":[{"number":1,"token":"ed84bd3a-0061-4282-a80a-450d7494e9b4#1","task_id":"01a1e425bee574ee5c33e36398f7f0b5","environment":"windfall","instance":"i-ec6cb399ac7965bac","gpu_ids":[],"log_stream":"windfall-run/default/01a1e425bee574ee5c33e36398f7f0b5","placed_at":1794829041381,"started_at":1794829041394,"stopped_at":null,"stop_at":null,"stop_cause":null,"deadline_at":null,"stop_words":null,"stop_for":null,"exit_code":null,"reason":null,"status_reason":null,"isolation":"process + cgroup v1 (memory, cpu)","prepared_at":null,"exited_at":null,"doing":null,"restored":null,"checkpoint":null,"alarm":null,"progress":null,"commit":null,"failure":null,"diagnosis":null,"gpu_share":null,"instance_type":"local","market":"on-demand","usd_hour":null,"on_demand_usd_hour":null}]}','{"name":"waits","queue":"windfall","definition":"windfall-run:1","resources":{"vcpus":1.0,"memory_mib":2048,"gpus":0},"retry":{"attempts":1,"rules":[]},"timeout_s":null,"array_size":null,"depends_on":[],"overrides":{"command":["sh","-c","echo begun; while ! test -e @ROOT@/go; do sleep 0.2; done; echo done"],"environment":{},"vcpus":1.0,"memory_mib":2048,"gpus":null},"parameters":{},"tags":{},"propagate_tags":false,"submitter":{"tenant":"default","key_id":"WNDF4E2GVIDBX62UY5YL","is_admin":true,"user":null},"document":"{}","kind":"batch","container":null,"staging":null,"free_interruptions":false,"instance_type":null,"limits":null,"budget_usd":null,"gpu_wish":null,"larger_gpu_on_oom":false,"stays_on_sick_gpu":false,"runtime":null,"pull":null,"worker":null,"share":null,"priority":0,"consumables":[],"preemptions_max":null,"nodes":null,"replaces_lost_nodes":false,"service_job":null}',NULL,NULL);
CREATE TABLE log_streams (
    log_group  TEXT NOT NULL,
    name       TEXT NOT NULL,
    task_id    TEXT NOT NULL,
    job_id     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (log_group, name)
) WITHOUT ROWID;
INSERT INTO "log_streams" VALUES('/aws/batch/job','windfall-run/default/01a1e425bd4046a404c28771f3a9215b','01a1e425bd4046a404c28771f3a9215b','b41f39fd-925a-45bf-8805-48b18d86812d',1794829040960);
INSERT INTO "log_streams" VALUES('/aws/batch/job','windfall-run/default/01a1e425bee574ee5c33e36398f7f0b5','01a1e425bee574ee5c33e36398f7f0b5','ed84bd3a-0061-4282-a80a-450d7494e9b4',1794829041381);
CREATE TABLE machines (id TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "machines" VALUES('this-host','{"id":"this-host","total":{"vcpus":2.0,"memory_mib":4096,"gpus":0},"gpus":[],"facts":{"hostname":"host","job_user":"nobody","isolation":"process, bubblewrap, cgroup v1 (memory, cpu)","containers":"","network_mbits":"","warnings":"","any_user":"yes"},"fences":{},"pardons":{}}');
CREATE TABLE outbox (
    seq         INTEGER PRIMARY KEY,
    destination TEXT NOT NULL,
    id          TEXT NOT NULL,
    subject     TEXT NOT NULL,
    record      TEXT NOT NULL
);
CREATE TABLE queues (name TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "queues" VALUES('windfall','{"name":"windfall","priority":1,"environments":["windfall"],"switch":"ENABLED","created_at":1794829040938,"tags":{},"document":"{\"orders\":{\"windfall\":1}}","time_limits":[],"policy":null,"service_environment":null}');
CREATE TABLE schema_migrations (
    number BIGINT PRIMARY KEY,
    name   TEXT NOT NULL
);
INSERT INTO "schema_migrations" VALUES(1,'first');
INSERT INTO "schema_migrations" VALUES(2,'declarations');
INSERT INTO "schema_migrations" VALUES(3,'outbox');
INSERT INTO "schema_migrations" VALUES(4,'leadership');
INSERT INTO "schema_migrations" VALUES(5,'shares');
INSERT INTO "schema_migrations" VALUES(6,'tick_age');
INSERT INTO "schema_migrations" VALUES(7,'submitters');
INSERT INTO "schema_migrations" VALUES(8,'tenants');
CREATE TABLE service_jobs (
    seq        INTEGER PRIMARY KEY,
    id         TEXT NOT NULL,
    queue      TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    state      TEXT NOT NULL,
    stopped_at INTEGER,
    record     TEXT NOT NULL
);
CREATE TABLE store_identity (identity TEXT NOT NULL);
INSERT INTO "store_identity" VALUES('54ef5bc547584f70b0ea412a48cf745a');
CREATE TABLE ticks (
    schedule TEXT NOT NULL,
    due_at   INTEGER NOT NULL,
    -- 1 until it is known what became of it
    undone   INTEGER NOT NULL,
    record   TEXT NOT NULL,
    PRIMARY KEY (schedule, due_at)
) WITHOUT ROWID;
CREATE UNIQUE INDEX jobs_by_id ON jobs (id);
CREATE INDEX jobs_by_state ON jobs (queue, state, created_at) WHERE queue IS NOT NULL;
CREATE INDEX jobs_by_name ON jobs (queue, name_folded, created_at) WHERE queue IS NOT NULL;
CREATE INDEX children_by_index ON jobs (parent, child_index) WHERE parent IS NOT NULL;
CREATE INDEX children_finished ON jobs (parent, child_index, state)
    WHERE parent IS NOT NULL AND state IN ('SUCCEEDED', 'FAILED');
CREATE INDEX jobs_live ON jobs (ord) WHERE state NOT IN ('SUCCEEDED', 'FAILED');
CREATE INDEX jobs_finished ON jobs (COALESCE(stopped_at, created_at))
    WHERE parent IS NULL AND state IN ('SUCCEEDED', 'FAILED');
CREATE TRIGGER count_inserted AFTER INSERT ON jobs
WHEN NEW.parent IS NULL AND NEW.state IN ('SUCCEEDED', 'FAILED')
BEGIN
    INSERT INTO finished_counts (queue, state, number) VALUES (NEW.queue, NEW.state, 1)
    ON CONFLICT (queue, state) DO UPDATE SET number = number + 1;
END;
CREATE TRIGGER count_updated AFTER UPDATE OF state ON jobs
WHEN NEW.parent IS NULL AND NEW.state <> OLD.state
    AND (NEW.state IN ('SUCCEEDED', 'FAILED') OR OLD.state IN ('SUCCEEDED', 'FAILED'))
BEGIN
    UPDATE finished_counts SET number = number - 1 WHERE queue = OLD.queue AND state = OLD.state;
    INSERT INTO finished_counts (queue, state, number)
    SELECT NEW.queue, NEW.state, 1 WHERE NEW.state IN ('SUCCEEDED', 'FAILED')
    ON CONFLICT (queue, state) DO UPDATE SET number = number + 1;
END;
CREATE TRIGGER count_deleted AFTER DELETE ON jobs
WHEN OLD.parent IS NULL AND OLD.state IN ('SUCCEEDED', 'FAILED')
BEGIN
    UPDATE finished_counts SET number = number - 1 WHERE queue = OLD.queue AND state = OLD.state;
END;
CREATE INDEX log_streams_by_job ON log_streams (job_id);
CREATE UNIQUE INDEX service_jobs_by_id ON service_jobs (id);
CREATE INDEX service_jobs_live ON service_jobs (seq) WHERE state NOT IN ('SUCCEEDED', 'FAILED');
CREATE INDEX service_jobs_by_state ON service_jobs (queue, state, created_at);
CREATE INDEX ticks_undone ON ticks (schedule, due_at) WHERE undone = 1;
CREATE UNIQUE INDEX outbox_by_id ON outbox (destination, id);
CREATE INDEX outbox_in_order ON outbox (destination, seq);
CREATE INDEX jobs_by_share ON jobs (queue, share, state, created_at, seq) WHERE share IS NOT NULL;
CREATE INDEX ticks_by_age ON ticks (due_at) WHERE undone = 0;
COMMIT;
