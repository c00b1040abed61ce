set -e
install -d -o mysql -g mysql /run/mysqld /var/lib/mysql
[ -d /var/lib/mysql/mysql ] ||
  mariadb-install-db --user=mysql --skip-test-db --auth-root-authentication-method=socket > /tmp/install.log 2>&1
cat > /tmp/init.sql <<'S'
CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS 'slurm'@'%' IDENTIFIED BY 'slurm';
GRANT ALL ON slurm_acct_db.* TO 'slurm'@'%';
S
exec mariadbd --user=mysql --bind-address=0.0.0.0 --innodb-buffer-pool-size=64M --innodb-lock-wait-timeout=900 \
  --skip-log-bin --init-file=/tmp/init.sql
