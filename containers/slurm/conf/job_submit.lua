-- A site's own script, as far as this mini-cluster has one, with Horae's module chained behind it.
function slurm_job_submit(job_desc, part_list, submit_uid)
  return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  return slurm.SUCCESS
end

local horae_ok, horae = pcall(dofile, "$HORAE_LUA/horae.lua")
if horae_ok then horae.chain() end
return slurm.SUCCESS
