#pragma once
typedef int kern_return_t;
typedef unsigned task_id_token_t;
typedef unsigned mach_port_t;
