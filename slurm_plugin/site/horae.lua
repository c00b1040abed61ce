-- Horae's job_submit module: holds and tags the GPU jobs of managed partitions, and nothing else.
--
-- Chained from the end of a site's own job_submit.lua by two lines (`horae install slurm` writes them):
--     local horae_ok, horae = pcall(dofile, "/etc/horae/slurm/horae.lua")
--     if horae_ok then horae.chain() end
--
-- Rules it keeps: it never calls Slurm, never opens a fifo, never waits; every entry is under pcall; an error of
-- its own refuses jobs of managed partitions with one sentence and lets all others pass; with a stale heartbeat it
-- holds nothing and refuses nothing, and Slurm schedules as if Horae were not there.

local M = {version = 1, counter = 0, beside = {}}

-- Slurm's "not given" of 16, 32 and 64 bits; a Lua number cannot tell 2^64-1 from 2^64-2, and need not.
local NO_VAL16, NO_VAL, NO_VAL64 = 65534, 4294967294, 1.8446744073709e19
local ADMIN_TAG = "horae="
-- A job waits for a begin time that is so far away: unlike a job that is held, Slurm checks it at submission (and refuses
-- what it never could run), judges its dependency at once, and shows who else holds it.
local PARKED_S = 366 * 24 * 3600
-- An owner's own start time: so far ahead that the arbiter holds the job before it comes, and not so far that it is
-- taken for ours.
local SOONEST_S, LATEST_S = 600, 170 * 24 * 3600
-- "now" is a login node's, whose clock may be ahead of ours
local AT_ONCE_S = 10

M.config = {
  partitions = {},        -- name -> true
  spool = "/var/spool/horae",
  stale_s = 120,
  admins = {[0] = true},  -- uids whose changes are never refused: root, SlurmUser, Horae's account
  interactive = "hold",   -- srun and salloc wait their turn as rigid jobs; "pass": they are Slurm's own; or "refuse"
  heterogeneous = "pass", -- jobs of several components are Slurm's own; or "refuse"
  default_partition = nil,
}

local function given(value, none)
  if value == nil or value == "" then return false end
  if type(value) == "number" then
    if value >= NO_VAL64 then return false end
    if value == NO_VAL or value == NO_VAL + 1 or value == none or (none and value == none + 1) then return false end
  end
  return true
end

local function split(text, separator)
  local parts = {}
  for part in string.gmatch(text or "", "([^" .. separator .. "]+)") do parts[#parts + 1] = part end
  return parts
end

local function say(text)
  slurm.log_user("%s", "horae: " .. text)
end

-- The heartbeat, if it is fresh: the set of partitions whose jobs are held now. nil: nobody lives there.
local function alive(config)
  local file = io.open(config.spool .. "/heartbeat", "r")
  if not file then return nil end
  local time, hold = nil, {}
  for line in file:lines() do
    local key, value = string.match(line, "^(%S+)%s*(.*)$")
    if key == "time" then time = tonumber(value) end
    if key == "hold" then for _, name in ipairs(split(value, ",")) do hold[name] = true end end
  end
  file:close()
  if not time or math.abs(os.time() - time) > config.stale_s then return nil end
  return hold
end

-- time + counter + urandom: math.random is not seeded in some releases and repeats after each reload
local function nonce()
  M.counter = M.counter + 1
  local text = string.format("%x%x", os.time(), M.counter)
  local file = io.open("/dev/urandom", "rb")
  if file then
    local bytes = file:read(6) or ""
    file:close()
    for index = 1, #bytes do text = text .. string.format("%02x", string.byte(bytes, index)) end
  end
  return text
end

-- "gres:gpu:v100:2,gres/gpu:1" -> 3, {v100}; nil when it names no GPU
local function gpus_of(text)
  if not given(text) then return nil, {}, nil end
  local total, types, prefix = nil, {}, nil
  for _, item in ipairs(split(text, ",")) do
    local rest = string.match(item, "^gres[:/]gpu(.*)$") or string.match(item, "^gpu(.*)$")
    if rest then
      -- a type may be digits alone (gpu:3090:2); without a count behind it those are the count
      local kind, count = string.match(rest, "^[:/]([%w_%-%.]+)[:=](%d+)$")
      if not kind then kind, count = string.match(rest, "^[:/](%d*[%a_][%w_%-%.]*)$"), string.match(rest, "^[:=](%d+)$") end
      total = (total or 0) + (tonumber(count) or 1)
      prefix = string.match(item, "^gres[:/]gpu") -- the release's own spelling
      if kind then types[#types + 1] = kind end
    end
  end
  return total, types, prefix
end

local function least(value, otherwise)
  if given(value, NO_VAL16) and value > 0 then return value end
  return otherwise
end

-- Features that every node must have; nil for an expression that is more than a list of such
local function plain_features(text)
  if not given(text) or string.find(text, "[^%w_%-%.&,]") then return nil end
  return table.concat(split(text, "&,"), "/")
end

-- Features of which every node must have one, of a list of such alone
local function any_feature(text)
  if not given(text) or not string.find(text, "|", 1, true) or string.find(text, "[^%w_%-%.|]") then return nil end
  return table.concat(split(text, "|"), "/")
end

-- Nodes by name, with Slurm's commas as slashes; nil: none are named, or too many for a word
local function node_names(text)
  if not given(text) or #text > 240 or string.find(text, "[^%w_%-%.,%[%]]") then return nil end
  return (string.gsub(text, ",", "/"))
end

-- What a job that keeps its own shape asks of its nodes, for the tag: `shape=own,per=..,nodecpus=..` and the like
local function shape_of(jd, request)
  local words = ",shape=own"
  local function add(name, value) if value then words = words .. "," .. name .. "=" .. value end end
  local whole = function(value) return value and string.format("%d", value) end
  add("per", whole(request.per_node))
  add("fixed", request.fixed and "1")
  add("nodecpus", whole(request.node_cpus))
  if jd.shared == 0 then add("alone", "1") end
  add("features", plain_features(jd.features))
  add("any", any_feature(jd.features))
  add("on", node_names(jd.req_nodes))
  add("off", node_names(jd.exc_nodes))
  -- 24.11 counts tasks by the GPU, and by GPUs of a task and of a node, anew at every update, and wrongly: an update
  -- then says their number too
  local by_both = request.per_node and gpus_of(jd.tres_per_task)
  if given(jd.ntasks_per_gpu, NO_VAL16) or by_both then add("tasks", whole(least(jd.num_tasks, nil))) end
  return words
end

-- What the job asks for in all: {gpus, nodes, types, cpus, mem (MB a node, 0: not said)}; nil: no GPUs
local function request_of(jd)
  local nodes = least(jd.min_nodes, 1)
  local tasks = least(jd.num_tasks, nil)
  if not tasks then
    local per_node = least(jd.ntasks_per_node, nil)
    tasks = per_node and per_node * nodes or nodes
  end
  -- a number of nodes that is not said follows from tasks by the node
  local fixed, by_node = least(jd.min_nodes, nil) ~= nil, least(jd.ntasks_per_node, nil)
  if not fixed and by_node and least(jd.num_tasks, nil) then nodes, fixed = math.ceil(tasks / by_node), true end
  local count, types, total, prefix, each
  count, types, prefix = gpus_of(jd.tres_per_job)
  if count then total = count end
  if not total then
    count, types, prefix = gpus_of(jd.tres_per_node)
    if not count then count, types, prefix = gpus_of(jd.gres) end
    if count then total, each = count * nodes, count end
  end
  if not total then
    count, types, prefix = gpus_of(jd.tres_per_task)
    if count then total = count * tasks end
  end
  if not total then
    count, types, prefix = gpus_of(jd.tres_per_socket)
    if count then
      each = count * (least(jd.sockets_per_node, nil) or 1)
      total = each * nodes
    end
  end
  -- Slurm counts GPUs by the tasks, where tasks by the GPU are all that is asked for
  local by_gpu = least(jd.ntasks_per_gpu, nil)
  if not total and by_gpu then total = math.ceil(tasks / by_gpu) end
  -- a node for itself comes with all its GPUs, whoever asks for none: it waits for a node's, and keeps its own shape
  if (total or 0) < 1 and jd.shared == 0 then total, each = nodes, 1 end
  if not total or total < 1 then return nil end
  local cpus = least(jd.cpus_per_task, nil)
  -- all its tasks are on one node only where it is to have no more: else Slurm spreads them
  local alone = fixed and nodes == 1 and least(jd.max_nodes, 1) == 1
  local node_cpus = (by_node or (alone and tasks) or 1) * (cpus or 1)
  cpus = cpus and cpus * tasks or (tasks > nodes and tasks or nil)
  local asked = least(jd.min_cpus, nil)
  if asked and asked > math.max(cpus or 1, nodes) then cpus = asked end
  local per_gpu = string.match(jd.cpus_per_tres or "", "gpu[:=](%d+)")
  if per_gpu then cpus = tonumber(per_gpu) * total end
  local mem = 0
  if given(jd.min_mem_per_node) and jd.min_mem_per_node > 0 and jd.min_mem_per_node < 2 ^ 62 then
    mem = jd.min_mem_per_node
  end
  return {
    gpus = total, nodes = nodes, types = types, cpus = cpus, mem = mem, prefix = prefix or "gres:gpu",
    per_node = each, fixed = fixed or total == each, node_cpus = node_cpus > 1 and node_cpus or nil,
  }
end

-- Text of the user's that other programs read by lines and fields, and screens show: control characters (C0, DEL,
-- and C1 as UTF-8 has it) have no place in it. Returns an error sentence, or nil.
local function wrong_text(jd)
  for option, text in pairs({["--comment"] = jd.comment, ["--job-name"] = jd.name}) do
    if type(text) == "string" and (string.find(text, "%c") or string.find(text, "\194[\128-\159]")) then
      return option .. " holds a control character (a line break, a tab, an escape): leave it out"
    end
  end
  return nil
end

-- The user's word. Returns an error sentence, or nil.
local function counts(text)
  return #text <= 7 and string.match(text, "^[1-9]%d*$") ~= nil and tonumber(text) <= 1000000
end

local KEYS = {min = "n", max = "n", allowed = "l", app = "t", key = "t", types = "t", prefer = "t", forbid = "t", iters = "t", grace = "n", ckpt = "t"}
local function wrong_word(comment)
  local word = string.match(" " .. (comment or ""), "%shorae:(%S*)")
  if not word then return nil end
  local seen = {}
  for _, item in ipairs(split(word, ",")) do
    local key, value = string.match(item, "^([^=]+)=(.+)$")
    if not key then return "'" .. item .. "' in --comment is not name=value" end
    local kind = KEYS[key]
    if not kind then return "--comment knows no '" .. key .. "' (min max allowed app key types prefer forbid iters grace ckpt)" end
    if kind == "n" and not counts(value) then return key .. "=" .. value .. " is not a number from 1 to 1000000" end
    if kind == "l" then
      for _, part in ipairs(split(value, "/")) do
        if not counts(part) then return "allowed=" .. value .. " is not a list such as 1/2/4" end
      end
    end
    seen[key] = value
  end
  if seen.allowed and (seen.min or seen.max) then return "allowed= is the whole range: leave out min and max" end
  if seen.min and seen.max and tonumber(seen.min) > tonumber(seen.max) then
    return "min=" .. seen.min .. " is above max=" .. seen.max
  end
  return nil
end

-- Where a job goes that names no partition: an administrator may say otherwise at any time. slurmctld lists those that
-- its user may use, and takes the mark from the one that was the default only when that is shown next: of several the
-- one that was not it before.
local function default_partition(config, parts)
  local marked, last = {}, M.default or config.default_partition
  for name, part in pairs(parts or {}) do
    if part.flag_default == 1 then marked[#marked + 1] = name end
  end
  table.sort(marked)
  local names = table.concat(marked, ",")
  if names ~= M.marked then
    M.marked, M.default = names, marked[1]
    for _, name in ipairs(marked) do
      if name ~= last then M.default = name end
    end
  end
  return M.default or config.default_partition
end

-- The managed one of a job's partitions, whether it names others too, and those of them that are Slurm's own
local function managed_partition(config, hold, partitions)
  local names = split(partitions or "", ",")
  local managed, others = nil, {}
  for _, name in ipairs(names) do
    if not (config.partitions[name] and hold[name]) then others[#others + 1] = name
    elseif not managed then managed = name end
  end
  return managed, #names > 1, others
end

-- The words of a list of partitions, for the tag; nil where a word cannot hold it
local function list_words(partitions, others)
  if #others == 0 or #partitions > 240 or string.find(partitions, "[^%w_%-%.,]") then return nil end
  return ",beside=" .. table.concat(others, "/") .. ",list=" .. table.concat(split(partitions, ","), "/")
end

-- Where jobs wait beside, for the arbiter to look there too: each name once for each load of this module, and only
-- those that slurmctld says this user may use. It has not looked at the others yet: they are whatever a user wrote.
local function note_beside(config, others, parts)
  for _, name in ipairs(others) do
    local file = parts and parts[name] and not M.beside[name] and io.open(config.spool .. "/beside", "a")
    if file then
      file:write(name .. "\n")
      file:close()
      M.beside[name] = true
    end
  end
end

local function is_batch(jd)
  return jd.script ~= nil and jd.script ~= ""
end

-- Whether the script itself sets --deadline: Slurm shows its value to no Lua.
local function has_deadline(jd)
  for line in string.gmatch(is_batch(jd) and jd.script or "", "[^\n]+") do
    if string.find(line, "^%s*[^#%s]") then return false end -- sbatch reads no further either
    if string.find(line, "^#SBATCH%s") and string.find(line, "%s%-%-dea[dline]*[=%s]") then return true end
  end
  return false
end

-- Whether it can be stopped and started in other shapes: its user says so, and a script can be started again.
local function elastic(jd)
  return is_batch(jd) and string.find(" " .. (jd.comment or ""), "%shorae:%S") ~= nil
end

-- Whether Slurm is to start it again before all others, where its release can (25.11).
local function expedites(jd)
  local flag, flags = slurm.EXPEDITED_REQUEUE, jd.bitflags
  return type(flag) == "number" and type(flags) == "number" and math.floor(flags / flag) % 2 == 1
end

-- Why a job is not taken; nil: it is, or is left to Slurm
local function refusal(config, jd, het, mixed, managed)
  if het then
    if config.heterogeneous ~= "refuse" then return nil end
    return "heterogeneous jobs are not taken in partition " .. managed .. "; submit one job, or name another partition"
  end
  if jd.cron_job and elastic(jd) then return "leave out the horae: word: jobs of a scrontab are Slurm's own" end
  if not is_batch(jd) and config.interactive == "refuse" then
    return "partition " .. managed .. " takes batch jobs only: use sbatch, or another partition for srun and salloc"
  end
  if not is_batch(jd) and jd.immediate == 1 and config.interactive == "hold" then
    return "leave out --immediate: jobs of partition " .. managed .. " wait for their turn"
  end
  local wrong = wrong_text(jd)
  if wrong or not elastic(jd) then return wrong end
  wrong = wrong_word(jd.comment)
  if wrong then return wrong end
  if jd.priority == 0 then return "leave out --hold: an elastic job waits for its GPUs anyway" end
  if mixed then return "name one partition: an elastic job's cannot stand in a list" end
  if given(jd.req_nodes) then return "leave out --nodelist: nodes of this partition are chosen for each start" end
  if given(jd.exc_nodes) then return "leave out --exclude: nodes of this partition are chosen for each start" end
  if given(jd.reservation) then return "leave out --reservation: only a job without a horae: word can have one" end
  if expedites(jd) then return "leave out --requeue=expedite: a lost elastic job is started again anyway" end
  if given(jd.features) then return "leave out --constraint; say --comment=horae:types=TYPE to choose GPU types" end
  return nil
end

local function submit(jd, parts)
  local config = M.config
  if given(jd.admin_comment) then jd.admin_comment = string.gsub(jd.admin_comment, ADMIN_TAG, "horae-") end -- no tag
  local hold = alive(config)
  if not hold then return slurm.SUCCESS end
  local partitions = jd.partition or default_partition(config, parts)
  local managed, mixed, others = managed_partition(config, hold, partitions)
  if not managed then return slurm.SUCCESS end
  local request = request_of(jd)
  local het = jd.het_job_offset ~= nil and given(jd.het_job_offset)
  if not request and not het then return slurm.SUCCESS end
  local why = refusal(config, jd, het, mixed, managed)
  if why then say(why); return slurm.ERROR end
  if het or (config.interactive == "pass" and not is_batch(jd)) then return slurm.SUCCESS end
  if given(jd.reservation) then return slurm.SUCCESS end -- who may have those nodes, and when, its site has said already
  if jd.cron_job then return slurm.SUCCESS end -- of a scrontab: after each end Slurm begins it again, at its own times

  local tag = ADMIN_TAG .. nonce() .. ",gpus=" .. string.format("%d", request.gpus) ..
    ",nodes=" .. string.format("%d", request.nodes)
  if #request.types > 0 then tag = tag .. ",types=" .. table.concat(request.types, "/") end
  if request.cpus then tag = tag .. ",cpus=" .. string.format("%d", request.cpus) end
  if request.mem > 0 then tag = tag .. ",mem=" .. string.format("%d", request.mem) end
  if given(jd.begin_time) and jd.begin_time > os.time() then
    tag = tag .. ",begin=" .. string.format("%d", jd.begin_time)
  end
  local at_once, licences = string.match(jd.array_inx or "", "%%(%d+)$"), jd.licenses
  if at_once then tag = tag .. ",atonce=" .. at_once end
  if given(licences) and #licences <= 240 and not string.find(licences, "[^%w_%-%.@:,]") then
    tag = tag .. ",lic=" .. string.gsub(licences, ",", "/")
  end
  local changes_shape = elastic(jd)
  if not changes_shape then tag = tag .. shape_of(jd, request) end
  local list = list_words(partitions, others)
  if list then -- in the others it waits as everybody there does; in ours once it is its turn
    tag, jd.partition = tag .. list, table.concat(others, ",")
    note_beside(config, others, parts)
  elseif has_deadline(jd) then -- a begin time after it would be refused
    if jd.priority ~= 0 then jd.priority, tag = 0, tag .. ",held=1" end -- a hold of its user's is his
  else
    jd.begin_time = os.time() + PARKED_S -- and who held it by --hold holds it beside that
  end
  local part = string.find(managed, "[^%w_%-%.]") and "" or ",part=" .. managed
  if not changes_shape then return M.taken(config, jd, tag .. part) end
  local mail = least(jd.mail_type, nil)
  if mail then tag = tag .. ",mail=" .. string.format("%d", mail) end
  -- one node, one task, untyped: from there every shape can be reached
  jd.tres_per_job, jd.tres_per_task, jd.tres_per_socket, jd.cpus_per_tres = "", "", "", ""
  jd.tres_per_node = request.prefix .. ":1"
  jd.min_nodes, jd.max_nodes, jd.num_tasks, jd.cpus_per_task, jd.min_cpus = 1, 1, 1, 1, 1
  jd.ntasks_per_node = NO_VAL16
  jd.pn_min_cpus = 1
  if jd.shared == 0 then jd.shared = NO_VAL16 end -- --exclusive would take every GPU of a node
  jd.requeue = 1
  return M.taken(config, jd, tag .. part)
end

-- Tagged, told of where the spool is, and noticed.
function M.taken(config, jd, tag)
  jd.admin_comment = given(jd.admin_comment) and jd.admin_comment .. " " .. tag or tag
  if M.environment then M.environment(jd, tag) end
  local events = io.open(config.spool .. "/events", "a")
  if events then events:write("submit\n"); events:close() end
  return slurm.SUCCESS
end

-- Whether a job of these GPUs, partitions and this reservation is one that is held at submission; its managed partition
local function takes(config, hold, sources, partitions, reservation)
  if given(reservation) then return nil end
  for _, source in ipairs(sources) do
    for _, name in ipairs({"tres_per_job", "tres_per_node", "tres_per_task", "tres_per_socket", "gres"}) do
      if gpus_of(source[name]) then return (managed_partition(config, hold, partitions)) end
    end
  end
  return nil
end

-- The managed partition that a waiting job would come to by this change of its owner's; nil: none, or it is there. It
-- can be given no tag here (Slurm lets nobody but an operator write one), and would start past all who wait.
local function comes_to(config, hold, jd, record)
  local het = record.het_job_id
  if (type(het) == "number" and het > 0) or (config.interactive == "pass" and not is_batch(record)) then return nil end
  local reservation = record.resv_name
  if takes(config, hold, {record}, record.partition, reservation) then return nil end
  local partitions = given(jd.partition) and jd.partition or record.partition
  if jd.reservation ~= nil then reservation = jd.reservation end
  return takes(config, hold, {jd, record}, partitions, reservation)
end

-- Why its owner may not give a waiting job this start time; nil: he may
local function wrong_time(begin_time, tag)
  local ahead = begin_time - os.time()
  if ahead > LATEST_S then return "given a start time more than 170 days ahead" end
  if ahead >= SOONEST_S then return nil end
  if ahead > AT_ONCE_S then return "given a start time less than 10 minutes ahead" end
  if (tonumber(string.match(tag, ",begin=(%d+)")) or 0) > os.time() then return "started before its --begin" end
  return nil
end

-- Changes by the owner that would start the job past us or change its shape under us.
local function modify(jd, record, uid)
  local config = M.config
  if config.admins[uid] then return slurm.SUCCESS end
  local hold, tag = alive(config), record.admin_comment or ""
  local list = string.match(tag, ",list=([^,%s]+)")
  local partitions = list and string.gsub(list, "/", ",") or record.partition or ""
  if not hold then return slurm.SUCCESS end
  local tagged = string.find(" " .. tag, "%s" .. ADMIN_TAG)
  if not tagged or not managed_partition(config, hold, partitions) then
    local managed = comes_to(config, hold, jd, record)
    if not managed then return slurm.SUCCESS end
    say("jobs of partition " .. managed .. " wait their turn from their submission on: scancel it, and submit it with " ..
      "--partition=" .. managed)
    return slurm.ERROR
  end
  local wrong = wrong_text(jd)
  if wrong then say(wrong); return slurm.ERROR end
  local change = nil
  -- A rigid job its owner may hold, release and renice: it waits for our begin time all the same, or is held by us as
  -- an administrator, which he cannot undo (but by a nice). Where it may run is his to say, and how large it is once it
  -- runs: Slurm can only make it smaller then. Before, a small job would have its turn, and start as a large one.
  local shaped = string.find(record.admin_comment, ",shape=own")
  local own = shaped and not string.find(record.admin_comment, ",held=1")
  -- INFINITE, elsewhere "not given", is what `scontrol release` writes here
  if not own and (given(jd.priority) or jd.priority == NO_VAL + 1) then change = "held, released or given a priority" end
  if given(jd.nice) and not (own and (record.priority or 0) > 0) then change = "reniced" end
  if given(jd.partition) and jd.partition ~= record.partition then change = "moved to another partition" end
  if not shaped and given(jd.requeue, NO_VAL16) and jd.requeue == 0 then change = "made unrequeueable" end
  local timed = given(jd.begin_time) and jd.begin_time > 0 and not list
  if timed then change = wrong_time(jd.begin_time, tag) or change end
  local runs = shaped and type(record.job_state) == "number" and record.job_state % 256 == 1
  local size = given(jd.min_nodes) or given(jd.max_nodes) or given(jd.num_tasks) or given(jd.tres_per_node) or
    given(jd.tres_per_job) or given(jd.tres_per_task) or given(jd.tres_per_socket)
  local where = given(jd.req_nodes) or given(jd.features) or given(jd.exc_nodes)
  if (size and not runs) or (where and not shaped) or (given(jd.reservation) and not own) then change = "reshaped" end
  if not change then
    local now = timed and jd.begin_time <= os.time() + AT_ONCE_S and not string.find(tag, ",held=1")
    if now then jd.begin_time = os.time() + PARKED_S end -- at once is when its turn comes
    return slurm.SUCCESS
  end
  say("a job of this partition cannot be " .. change .. " by its owner; scancel, and edits of comment, name and time limit work")
  return slurm.ERROR
end

-- Environment of the batch script, for horae-exec: where the spool is, and which job folder is its own.
function M.environment(jd, tag)
  if is_batch(jd) and jd.environment then
    jd.environment.HORAE_SPOOL = M.config.spool
    jd.environment.HORAE_NONCE = string.match(tag, ADMIN_TAG .. "([^,]+)")
  end
end

local function guarded(what, managed, entry, ...)
  local ok, result = pcall(entry, ...)
  if ok then return result end
  slurm.log_error("%s", "horae: " .. what .. ": " .. tostring(result))
  if managed then
    say("an internal error keeps this job from being taken; name another partition, or tell the operator")
    return slurm.ERROR
  end
  return slurm.SUCCESS
end

local function touches_managed(jd)
  local names = jd and (jd.partition or M.config.default_partition) or ""
  for _, name in ipairs(split(tostring(names), ",")) do
    if M.config.partitions[name] then return true end
  end
  return false
end

function M.submit(jd, parts, uid)
  local ok, managed = pcall(touches_managed, jd)
  return guarded("submit", not ok or managed, submit, jd, parts)
end

function M.modify(jd, record, parts, uid)
  return guarded("modify", false, modify, jd, record, uid)
end

-- Put ourselves behind what the site's script defined.
function M.chain()
  local site_submit, site_modify = slurm_job_submit, slurm_job_modify
  function slurm_job_submit(jd, parts, uid)
    if site_submit then
      local rc = site_submit(jd, parts, uid)
      if rc ~= nil and rc ~= slurm.SUCCESS then return rc end
    end
    return M.submit(jd, parts, uid)
  end
  function slurm_job_modify(jd, record, parts, uid)
    if site_modify then
      local rc = site_modify(jd, record, parts, uid)
      if rc ~= nil and rc ~= slurm.SUCCESS then return rc end
    end
    return M.modify(jd, record, parts, uid)
  end
end

local here = string.match(debug and debug.getinfo and debug.getinfo(1, "S").source or "", "^@(.*)/[^/]*$")
local found, settings = pcall(dofile, (here or "/etc/horae/slurm") .. "/horae_conf.lua")
if found and type(settings) == "table" then
  for key, value in pairs(settings) do M.config[key] = value end
end

return M
